//! The windows of the race tests, met by a script that goes about it as a dump does: were they
//! not where they claim to be, the race tests would prove nothing.

use stillpoint_tests::race::{Moment, Then, Window, drive};
use stillpoint_tests::{Cluster, Finished, psql};

/// An attempt: snapshot, DDL by `pg_dump`, a worker's locks and rows. The worker has ended
/// before the next attempt's snapshot is taken.
const ATTEMPT: &str = r#"
BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;
SELECT pg_export_snapshot() AS snapshot \gset
\setenv SNAPSHOT :snapshot
\! PGAPPNAME=pg_dump pg_dump --schema-only --snapshot=$SNAPSHOT >/dev/null 2>&1 && psql -XAtq -c 'BEGIN ISOLATION LEVEL REPEATABLE READ' -c "SET TRANSACTION SNAPSHOT '$SNAPSHOT'" -c 'LOCK TABLE ONLY barrier, t IN ACCESS SHARE MODE' -c 'SELECT count(*) FROM t' || echo failed
ROLLBACK;
"#;

/// Runs attempts against a database with ten rows in its table `t`.
fn imitate(attempts: usize, mut at: impl FnMut(&Cluster, Moment) -> Then) -> (Cluster, Finished) {
    let cluster = Cluster::start();
    cluster.create_database("db");
    let mut session = cluster.session("db");
    session.exec("CREATE TABLE barrier (id int)");
    session.exec("CREATE TABLE t AS SELECT generate_series(1, 10) AS id");
    session.exec("CREATE TABLE u (id int)");
    let script = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(script.path(), ATTEMPT.repeat(attempts)).expect("it can be written");
    let dump = psql(&cluster, "db")
        .args(["-Atq", "-f"])
        .arg(script.path())
        .env("PGHOST", cluster.host())
        .env("PGPORT", cluster.port().to_string())
        .env("PGUSER", "postgres")
        .env("PGDATABASE", "db")
        .env("PGAPPNAME", "stillpoint");
    let finished = drive(&cluster, "db", dump, |moment| at(&cluster, moment));
    finished.assert_exit(0).assert_silent();
    (cluster, finished)
}

#[test]
fn every_attempt_has_its_two_windows_in_order() {
    let mut moments = Vec::new();
    let (_cluster, finished) = imitate(3, |_, moment| {
        moments.push((moment.attempt, moment.window));
        Then::NextWindow
    });
    let expected: Vec<_> = (1..=3)
        .flat_map(|attempt| [(attempt, Window::BeforeDdl), (attempt, Window::BeforeLocks)])
        .collect();
    assert_eq!(moments, expected);
    assert_eq!(finished.stdout, "10\n10\n10\n");
}

#[test]
fn what_is_committed_before_the_locks_is_neither_in_the_snapshot_nor_in_the_way() {
    let mut truncated_at = 0;
    let (_cluster, finished) = imitate(3, |cluster, moment| {
        if moment.window == Window::BeforeDdl {
            return Then::NextWindow;
        }
        cluster.session("db").exec("TRUNCATE t");
        cluster.session("db").exec("INSERT INTO t VALUES (1), (2)");
        truncated_at = moment.attempt;
        if moment.attempt == 2 { Then::End } else { Then::NextWindow }
    });
    assert_eq!(truncated_at, 2);
    assert_eq!(finished.stdout, "0\n0\n2\n", "emptied behind two snapshots");
}

#[test]
fn a_failed_ddl_step_leads_to_the_next_attempts_window() {
    let mut moments = Vec::new();
    let (cluster, finished) = imitate(2, |cluster, moment| {
        moments.push((moment.attempt, moment.window));
        if moments.len() == 1 {
            cluster.allow_log("relation \"public.u\" does not exist");
            cluster.session("db").exec("ALTER TABLE u RENAME TO renamed");
        }
        Then::NextWindow
    });
    drop(cluster);
    let expected = [(1, Window::BeforeDdl), (2, Window::BeforeDdl), (2, Window::BeforeLocks)];
    assert_eq!(moments, expected);
    assert_eq!(finished.stdout, "failed\n10\n");
}
