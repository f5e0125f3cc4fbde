//! What `pg_dump` meets while it reads the definitions.

use std::path::PathBuf;

use stillpoint_tests::{Cluster, Stillpoint, wait_until};
use tempfile::TempDir;

fn start() -> (Cluster, TempDir, PathBuf) {
    let cluster = Cluster::start();
    cluster.create_database("db");
    let mut session = cluster.session("db");
    session.exec("CREATE TABLE t AS SELECT generate_series(1, 10) AS id");
    session.exec("CREATE MATERIALIZED VIEW v AS SELECT count(*) FROM t");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    (cluster, directory, archive)
}

const SESSIONS_OF_THE_DUMP: &str = "SELECT count(*) = 0 FROM pg_stat_activity \
     WHERE application_name = 'stillpoint' OR application_name LIKE 'pg_dump%'";

#[test]
fn a_view_that_is_being_refreshed_holds_the_dump_up_no_longer_than_the_lock_timeout() {
    let (cluster, _directory, archive) = start();
    cluster.allow_cancelled_statements();
    let mut refreshing = cluster.session("db");
    refreshing.exec("BEGIN; REFRESH MATERIALIZED VIEW v");
    let finished = Stillpoint::dump(&cluster, "db", &archive)
        .args(["--lock-timeout", "0.5", "--attempts", "2"])
        .run();

    finished.assert_exit(1).assert_stderr(&format!(
        "stillpoint: error: could not dump the definitions in time, pg_dump waited: process {} \
         (user \"postgres\", application \"test\"): BEGIN; REFRESH MATERIALIZED VIEW v\n\
         stillpoint: hint: End that transaction, or wait longer with --lock-timeout.\n",
        refreshing.pid()
    ));
    let report = finished.report();
    assert_eq!(report["outcome"], "failed");
    assert_eq!(report["attempts"][0]["outcome"], "lock_timeout", "{}", finished.scene());
    assert_eq!(report["attempts"][1]["outcome"], "lock_timeout", "{}", finished.scene());
    assert!(!archive.exists() && !archive.with_extension("partial").exists());
    // It still holds its lock: whoever waited for it has given up.
    wait_until(&mut cluster.session("db"), SESSIONS_OF_THE_DUMP);
}

#[test]
fn a_view_whose_refresh_ends_in_time_costs_no_attempt() {
    let (cluster, _directory, archive) = start();
    let mut refreshing = cluster.session("db");
    refreshing.exec("BEGIN; REFRESH MATERIALIZED VIEW v");
    let dump = Stillpoint::dump(&cluster, "db", &archive).spawn();
    wait_until(
        &mut cluster.session("db"),
        &format!(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'pg_dump%' \
             AND {} = ANY (pg_blocking_pids(pid)))",
            refreshing.pid()
        ),
    );
    refreshing.exec("COMMIT");
    let finished = dump.wait();
    finished.assert_exit(0);
    let report = finished.report();
    assert_eq!(report["attempts"].as_array().map(Vec::len), Some(1), "{}", finished.scene());
}

#[test]
fn a_pg_dump_that_can_never_work_ends_the_dump_with_its_own_words() {
    let (cluster, _directory, archive) = start();
    cluster.allow_log("permission denied for table t");
    cluster.session("db").exec("CREATE ROLE nobody LOGIN");
    let finished = Stillpoint::unconnected(&cluster, "dump")
        .arg("-h")
        .arg(cluster.host())
        .args(["-p", &cluster.port().to_string(), "-U", "nobody", "-d", "db", "-f"])
        .arg(&archive)
        .args(["--report", "json"])
        .run();
    finished.assert_exit(1).assert_stderr("permission denied for table t");
    assert_eq!(finished.report()["attempts"].as_array().map(Vec::len), Some(0));
    assert!(!archive.exists());
}
