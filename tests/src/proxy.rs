//! A socket in front of servers, which sends connections where a test wants them and can hold
//! one up at the first row of a COPY.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use tempfile::TempDir;

use crate::{Cluster, DEADLINE, Stillpoint};

const PORT: u16 = 6543;

/// Where a connection goes.
pub struct Route {
    server: PathBuf,
    hold: Option<Hold>,
}

impl Route {
    /// To this cluster.
    #[must_use]
    pub fn to(cluster: &Cluster) -> Self {
        Self { server: socket(cluster.host(), cluster.port()), hold: None }
    }

    /// To this cluster, as often as asked.
    pub fn many(cluster: &Cluster) -> impl FnMut() -> Self + Send + 'static {
        let server = socket(cluster.host(), cluster.port());
        move || Self { server: server.clone(), hold: None }
    }

    /// The same, but the first COPY of the connection is held up until the test lets it go.
    #[must_use]
    pub fn held_by(mut self, hold: Hold) -> Self {
        self.hold = Some(hold);
        self
    }
}

/// The proxy's end of a [`Held`].
pub struct Hold {
    reached: Sender<()>,
    released: Receiver<()>,
}

/// The test's end: a connection that is to be held up.
pub struct Held {
    reached: Receiver<()>,
    released: Sender<()>,
}

impl Held {
    /// Both ends.
    #[must_use]
    pub fn new() -> (Self, Hold) {
        let (reached, reached_here) = channel();
        let (release, released) = channel();
        (Self { reached: reached_here, released: release }, Hold { reached, released })
    }

    /// Waits until the connection's first COPY has begun; no row of it has arrived.
    ///
    /// # Panics
    ///
    /// If that does not happen in time.
    #[track_caller]
    pub fn wait(&self) {
        self.reached.recv_timeout(DEADLINE).expect("the connection's first COPY never began");
    }

    /// Lets the connection go on.
    pub fn release(self) {
        // If the connection has ended, there is nothing to let go.
        let _ = self.released.send(());
    }
}

/// The socket.
pub struct Proxy {
    directory: TempDir,
}

impl Proxy {
    /// Listens. `route` is asked for every connection, with what its startup packet says.
    ///
    /// # Panics
    ///
    /// If there can be no socket.
    #[must_use]
    pub fn start(mut route: impl FnMut(&Startup) -> Route + Send + 'static) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let listener = UnixListener::bind(socket(directory.path(), PORT)).expect("a socket");
        // The thread ends with the test process; it holds nothing that would outlive it.
        thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                let Ok(startup) = Startup::read(&mut client) else { continue };
                let Route { server, hold } = route(&startup);
                let Ok(mut server) = UnixStream::connect(server) else { continue };
                if server.write_all(&startup.packet).is_ok() {
                    join(client, server, hold);
                }
            }
        });
        Self { directory }
    }

    /// `stillpoint dump -f ARCHIVE --report json` of the database `db` behind the socket. The
    /// scene that a failure prints is that of `cluster`.
    #[must_use]
    pub fn dump(&self, cluster: &Cluster, archive: &Path) -> Stillpoint {
        Stillpoint::unconnected(cluster, "dump")
            .arg("-h")
            .arg(self.directory.path())
            .args(["-p", &PORT.to_string(), "-U", "postgres", "-d", "db"])
            .args(["--report", "json", "--backoff", "0.05", "-f"])
            .arg(archive)
    }
}

/// The first packet of a connection.
pub struct Startup {
    packet: Vec<u8>,
}

impl Startup {
    fn read(client: &mut UnixStream) -> io::Result<Self> {
        let mut packet = vec![0; 4];
        client.read_exact(&mut packet)?;
        packet.resize(length(&packet), 0);
        client.read_exact(&mut packet[4..])?;
        Ok(Self { packet })
    }

    /// Whether it comes from a session of `stillpoint`, not from a program that it has started.
    #[must_use]
    pub fn is_from_stillpoint(&self) -> bool {
        let name = b"application_name\0stillpoint\0";
        self.packet.windows(name.len()).any(|window| window == name)
    }
}

fn socket(directory: &Path, port: u16) -> PathBuf {
    directory.join(format!(".s.PGSQL.{port}"))
}

/// A length field of the protocol, which counts itself.
fn length(bytes: &[u8]) -> usize {
    bytes[..4].iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
}

fn join(client: UnixStream, server: UnixStream, hold: Option<Hold>) {
    let (Ok(mut from_client), Ok(mut from_server)) = (client.try_clone(), server.try_clone())
    else {
        return;
    };
    let (mut to_client, mut to_server) = (client, server);
    thread::spawn(move || {
        // Either end may close when it likes; then the other is closed as well.
        let _ = io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        let _ = match hold {
            None => io::copy(&mut from_server, &mut to_client).map(drop),
            Some(hold) => pass_messages(&mut from_server, &mut to_client, hold),
        };
        let _ = to_client.shutdown(Shutdown::Both);
    });
}

/// Passes the server's messages on, the rows of the first COPY only when they are released.
fn pass_messages(server: &mut impl Read, client: &mut impl Write, hold: Hold) -> io::Result<()> {
    const COPY_OUT_RESPONSE: u8 = b'H';
    let mut hold = Some(hold);
    loop {
        let mut message = vec![0; 5];
        server.read_exact(&mut message)?;
        message.resize(1 + length(&message[1..]), 0);
        server.read_exact(&mut message[5..])?;
        client.write_all(&message)?;
        if message[0] == COPY_OUT_RESPONSE
            && let Some(hold) = hold.take()
        {
            // A test that has ended waits for nothing.
            let _ = hold.reached.send(());
            let _ = hold.released.recv();
        }
    }
}
