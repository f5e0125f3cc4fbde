//! A dump's connections may be led to different servers; no verdict may come of that.

use stillpoint_tests::proxy::{Proxy, Route};
use stillpoint_tests::{Cluster, Stillpoint};

/// A name behind which two servers stand: the connections of `stillpoint` that `elsewhere` picks,
/// counted from 1, go to the second one, all others to the first.
fn crossroads(clusters: &[Cluster; 2], elsewhere: fn(usize) -> bool) -> Proxy {
    let mut ours = 0;
    let [mut first, mut second] = [0, 1].map(|server| Route::many(&clusters[server]));
    Proxy::start(move |startup| {
        if !startup.is_from_stillpoint() {
            return first();
        }
        ours += 1;
        if elsewhere(ours) { second() } else { first() }
    })
}

/// Two servers with a database of the same name, of which one would find everything unmoved.
fn servers() -> [Cluster; 2] {
    [(); 2].map(|()| {
        let cluster = Cluster::start();
        cluster.create_database("db");
        cluster.session("db").exec("CREATE TABLE t AS SELECT generate_series(1, 10) AS id");
        // A pg_dump that is still running when a connection has gone astray is ended.
        cluster.allow_cancelled_statements();
        cluster
    })
}

#[test]
fn a_second_connection_that_reaches_another_server_is_an_error_and_no_verdict() {
    let servers = servers();
    let archive = servers[0].host().join("archive");
    // The first is the snapshot's, the second is a worker's, and of the third and fourth one
    // compares names and one the relations.
    for elsewhere in [|connection| connection == 3, |connection| connection == 4] {
        let crossroads = crossroads(&servers, elsewhere);
        let finished = crossroads.dump(&servers[0], &archive).run();
        finished.assert_exit(1).assert_stderr(
            "stillpoint: error: a connection has reached another server than the first, or an \
             older state of it\nstillpoint: hint: Name one host: ",
        );
        assert_eq!(finished.report()["outcome"], "failed");
        assert!(!archive.exists(), "{}", finished.scene());
    }
}

#[test]
fn a_worker_that_reaches_another_server_is_an_error() {
    let servers = servers();
    let archive = servers[0].host().join("archive");
    let crossroads = crossroads(&servers, |connection| connection == 2);
    let finished = crossroads.dump(&servers[0], &archive).run();
    finished.assert_exit(1).assert_stderr("has reached another server than the first");
    assert!(!archive.exists(), "{}", finished.scene());
}

#[test]
fn connections_that_all_reach_one_server_make_a_dump() {
    let servers = servers();
    let archive = servers[0].host().join("archive");
    let finished = crossroads(&servers, |_| false).dump(&servers[0], &archive).run();
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
