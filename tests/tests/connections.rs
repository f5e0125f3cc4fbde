//! A dump's connections may be led to different servers; no verdict may come of that.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use stillpoint_tests::{Cluster, Stillpoint};
use tempfile::TempDir;

const PORT: u16 = 6543;

/// A name behind which two servers stand: the connections of `stillpoint` that `elsewhere` picks,
/// counted from 1, go to the second one, all others to the first.
struct Crossroads {
    directory: TempDir,
}

impl Crossroads {
    fn new(first: &Cluster, second: &Cluster, elsewhere: fn(usize) -> bool) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let listener = UnixListener::bind(socket(directory.path(), PORT)).expect("a socket");
        let servers =
            Arc::new([socket(first.host(), first.port()), socket(second.host(), second.port())]);
        // The thread ends with the test process; it holds nothing that would outlive it.
        thread::spawn(move || {
            let mut ours = 0;
            for client in listener.incoming().map_while(Result::ok) {
                let mut client = client;
                let Ok(startup) = startup_packet(&mut client) else { continue };
                if is_from_stillpoint(&startup) {
                    ours += 1;
                }
                let goes = usize::from(is_from_stillpoint(&startup) && elsewhere(ours));
                let Ok(mut server) = UnixStream::connect(&servers[goes]) else { continue };
                if server.write_all(&startup).is_ok() {
                    join(client, server);
                }
            }
        });
        Self { directory }
    }

    fn dump(&self, cluster: &Cluster, archive: &Path) -> Stillpoint {
        Stillpoint::unconnected(cluster, "dump")
            .arg("-h")
            .arg(self.directory.path())
            .args(["-p", &PORT.to_string(), "-U", "postgres", "-d", "db"])
            .args(["--report", "json", "--backoff", "0.05", "-f"])
            .arg(archive)
    }
}

fn socket(directory: &Path, port: u16) -> PathBuf {
    directory.join(format!(".s.PGSQL.{port}"))
}

/// A startup packet as it comes, its length first.
fn startup_packet(client: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let mut packet = vec![0; u32::from_be_bytes(length) as usize];
    packet[..4].copy_from_slice(&length);
    client.read_exact(&mut packet[4..])?;
    Ok(packet)
}

fn is_from_stillpoint(startup: &[u8]) -> bool {
    let name = b"application_name\0stillpoint\0";
    startup.windows(name.len()).any(|window| window == name)
}

fn join(client: UnixStream, server: UnixStream) {
    let (Ok(mut from_client), Ok(mut from_server)) = (client.try_clone(), server.try_clone())
    else {
        return;
    };
    let (mut to_client, mut to_server) = (client, server);
    thread::spawn(move || {
        let _ = std::io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(std::net::Shutdown::Both);
    });
    thread::spawn(move || {
        let _ = std::io::copy(&mut from_server, &mut to_client);
        let _ = to_client.shutdown(std::net::Shutdown::Both);
    });
}

/// Two servers with a database of the same name, of which one would find everything unmoved.
fn servers() -> [Cluster; 2] {
    [(); 2].map(|()| {
        let cluster = Cluster::start();
        cluster.create_database("db");
        cluster.session("db").exec("CREATE TABLE t AS SELECT generate_series(1, 10) AS id");
        cluster
    })
}

#[test]
fn a_second_connection_that_reaches_another_server_is_an_error_and_no_verdict() {
    let [first, second] = servers();
    let archive = first.host().join("archive");
    // The first is the snapshot's, the second a worker's, the third the check's.
    let crossroads = Crossroads::new(&first, &second, |connection| connection == 3);
    let finished = crossroads.dump(&first, &archive).run();
    finished.assert_exit(1).assert_stderr(
        "stillpoint: error: the second connection has reached another server, or an older state \
         of it\nstillpoint: hint: Name one host: ",
    );
    assert_eq!(finished.report()["outcome"], "failed");
    assert!(!archive.exists(), "{}", finished.scene());
}

#[test]
fn a_worker_that_reaches_another_server_is_an_error() {
    let [first, second] = servers();
    second.allow_log("invalid snapshot identifier");
    second.allow_log("does not exist");
    let archive = first.host().join("archive");
    let crossroads = Crossroads::new(&first, &second, |connection| connection == 2);
    let finished = crossroads.dump(&first, &archive).run();
    finished.assert_exit(1).assert_stderr("could not import the snapshot");
    assert!(!archive.exists(), "{}", finished.scene());
}

#[test]
fn connections_that_all_reach_one_server_make_a_dump() {
    let [first, second] = servers();
    let archive = first.host().join("archive");
    let crossroads = Crossroads::new(&first, &second, |_| false);
    let finished = crossroads.dump(&first, &archive).run();
    finished.assert_exit(0);
    assert_eq!(finished.report()["complete"], true);
}

#[test]
fn a_host_of_the_list_that_does_not_answer_is_passed_over() {
    let [first, _second] = servers();
    let archive = first.host().join("archive");
    let nobody = tempfile::tempdir().expect("a temporary directory");
    let hosts = format!("{},{}", nobody.path().display(), first.host().display());
    let finished = Stillpoint::unconnected(&first, "dump")
        .args(["-h", &hosts, "-p", &first.port().to_string(), "-U", "postgres", "-d", "db", "-f"])
        .arg(&archive)
        .run();
    finished.assert_exit(0);
}
