//! What commits while rows are being read, in spite of the locks that the dump holds.

use std::path::PathBuf;

use stillpoint_tests::proxy::{Held, Proxy, Route};
use stillpoint_tests::{Cluster, Finished, restore_into, table_digest, wait_until};
use tempfile::TempDir;

/// A database in which the export begins with `a0.large` and goes on with `a.t`; there is
/// another `t` in `b`, which is not dumped.
fn start(extension: bool) -> (Cluster, TempDir, PathBuf) {
    let cluster = Cluster::preloaded();
    cluster.create_database("db");
    if extension {
        cluster.create_extension("db");
    }
    let mut session = cluster.session("db");
    session.exec("CREATE SCHEMA a0; CREATE TABLE a0.large AS SELECT i, repeat('x', 500) FROM generate_series(1, 900) i");
    session.exec("CREATE SEQUENCE a0.numbers");
    session.exec("CREATE SCHEMA a; CREATE TABLE a.t AS SELECT generate_series(1, 10) AS id");
    session.exec("CREATE SCHEMA b; CREATE TABLE b.t AS SELECT generate_series(1, 7) AS id");
    session.exec("ANALYZE");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    (cluster, directory, archive)
}

/// Dumps, and commits the statements when the first row of the first attempt is about to come
/// and the definitions have been read and compared.
fn dump_while(
    cluster: &Cluster,
    archive: &std::path::Path,
    arguments: &[&str],
    statements: &str,
) -> Finished {
    let (held, hold) = Held::new();
    let (mut ours, mut hold) = (0, Some(hold));
    let mut route = Route::many(cluster);
    let proxy = Proxy::start(move |startup| {
        ours += usize::from(startup.is_from_stillpoint());
        // The first is the snapshot's, the second the worker's.
        match (ours, hold.take_if(|_| ours == 2)) {
            (2, Some(hold)) => route().held_by(hold),
            _ => route(),
        }
    });
    let dump = proxy.dump(cluster, archive).args(["-n", "a*"]).args(arguments).spawn();
    held.wait();
    let mut session = cluster.session("db");
    // Sequences are read when all else about the definitions is done.
    wait_until(
        &mut session,
        "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid) \
                         WHERE relation = 'a0.numbers'::regclass \
                           AND application_name = 'stillpoint')",
    );
    session.exec(statements);
    held.release();
    dump.wait()
}

const SWAP: &str = "ALTER SCHEMA a RENAME TO a_old; ALTER SCHEMA b RENAME TO a";

fn assert_swap_costs_an_attempt(extension: bool) {
    let (cluster, _directory, archive) = start(extension);
    let finished = dump_while(&cluster, &archive, &[], SWAP);
    finished.assert_exit(0);
    let report = finished.report();
    assert_eq!(report["attempts"][0]["outcome"], "moved", "{}", finished.scene());
    assert_eq!(report["attempts"][1]["outcome"], "verified", "{}", finished.scene());
    let reasons = report["attempts"][0]["changes"].to_string();
    assert!(reasons.contains(r#"["renamed","recreated"]"#), "{reasons}");

    restore_into(&cluster, &archive, "restored");
    for table in ["a0.large", "a.t", "a_old.t"] {
        let source = table_digest(&mut cluster.session("db"), table);
        assert_eq!(table_digest(&mut cluster.session("restored"), table), source, "{table}");
    }
}

#[test]
fn a_schema_swapped_for_another_under_our_locks_costs_an_attempt_by_the_extension() {
    assert_swap_costs_an_attempt(true);
}

#[test]
fn a_schema_swapped_for_another_under_our_locks_costs_an_attempt_by_plain_sql() {
    assert_swap_costs_an_attempt(false);
}

#[test]
fn a_schema_renamed_under_our_locks_costs_an_attempt_although_the_rows_cannot_be_read() {
    let (cluster, _directory, archive) = start(false);
    cluster.allow_log("schema \"a\" does not exist");
    let finished = dump_while(&cluster, &archive, &[], "ALTER SCHEMA a RENAME TO a_old");
    finished.assert_exit(0);
    let report = finished.report();
    assert_eq!(report["attempts"][0]["outcome"], "moved", "{}", finished.scene());
    assert_eq!(report["attempts"][1]["outcome"], "verified", "{}", finished.scene());
    restore_into(&cluster, &archive, "restored");
    assert_eq!(cluster.session("restored").number("SELECT count(*) FROM a_old.t"), 10);
}

/// In the only attempt, `a.t` is left out for these reasons, and nothing else.
fn assert_left_out(cluster: &Cluster, archive: &std::path::Path, statements: &str, reasons: &str) {
    let finished = dump_while(cluster, archive, &["--attempts", "1"], statements);
    let warning = format!("the rows of a.t are left out: {reasons}\n");
    finished.assert_exit(2).assert_stderr(&warning);
    let report = finished.report();
    assert_eq!(report["attempts"][0]["outcome"], "left_out", "{}", finished.scene());

    restore_into(cluster, archive, "restored");
    let mut restored = cluster.session("restored");
    assert_eq!(restored.number("SELECT count(*) FROM a0.large"), 900);
    assert_eq!(restored.number("SELECT count(*) FROM a.t"), 0);
}

#[test]
fn another_tables_rows_are_taken_out_again_if_there_is_no_further_attempt() {
    let (cluster, _directory, archive) = start(false);
    assert_left_out(&cluster, &archive, SWAP, "renamed, recreated");
}

#[test]
fn a_table_that_cannot_be_read_under_its_name_is_left_out_if_there_is_no_further_attempt() {
    let (cluster, _directory, archive) = start(false);
    cluster.allow_log("schema \"a\" does not exist");
    assert_left_out(&cluster, &archive, "ALTER SCHEMA a RENAME TO a_old", "renamed");
}

#[test]
fn with_strict_another_tables_rows_are_a_failure() {
    let (cluster, _directory, archive) = start(false);
    let finished = dump_while(&cluster, &archive, &["--attempts", "1", "--strict"], SWAP);
    finished.assert_exit(1).assert_stderr("a.t (renamed, recreated)");
    assert!(!archive.exists(), "{}", finished.scene());
}
