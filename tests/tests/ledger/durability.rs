//! The record of work outside a transaction is durable before the work begins.

use stillpoint_tests::ledger::Storage;
use stillpoint_tests::{ClusterOptions, wait_until, wal_records};

use crate::{DATABASE, Scene, waits_behind};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, word text);
                     INSERT INTO t SELECT i, i FROM generate_series(1, 2000) AS i";

/// A cluster that writes its WAL late unless it is told to write it now.
fn lazy() -> ClusterOptions {
    ClusterOptions::default().durable().setting("wal_writer_delay = '10s'")
}

/// Crashes the server while `statement` waits for the table's lock, right after its record.
#[track_caller]
fn assert_told_after_a_crash(session_setting: &str, statement: &str) {
    let mut scene = Scene::with(lazy(), TABLE);
    let file = scene.session.text("SELECT pg_relation_filenode('t')");
    let index = scene.session.text("SELECT pg_relation_filenode('t_pkey')");
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE");
    let mut session = scene.cluster.session(DATABASE);
    session.exec(session_setting);
    let running = session.start(statement);
    wait_until(&mut scene.observer, &waits_behind(running.pid(), holder.pid()));
    scene.cluster.stop_immediate();
    drop(running.result());
    scene.cluster.start_server();
    let mut session = scene.cluster.session(DATABASE);
    let told = session.texts(
        "SELECT filenode::text FROM stillpoint.invalidation
          WHERE effect = 'announced' AND finished_xid IS NULL",
    );
    assert!(told.contains(&index), "{statement}: {told:?}");
    assert!(told.contains(&file) || statement.starts_with("REINDEX"), "{statement}: {told:?}");
}

#[test]
fn after_a_crash_the_ledger_names_what_a_vacuum_was_about_to_do() {
    assert_told_after_a_crash("SET synchronous_commit = on", "VACUUM t");
}

#[test]
fn after_a_crash_the_ledger_names_it_although_the_session_commits_asynchronously() {
    for statement in ["VACUUM t", "VACUUM FULL t", "REINDEX TABLE CONCURRENTLY t"] {
        assert_told_after_a_crash("SET synchronous_commit = off", statement);
    }
}

#[test]
fn after_a_crash_an_aborted_transactions_rows_are_gone_and_a_committed_ones_are_there() {
    let mut scene = Scene::with(lazy(), "CREATE TABLE a (id int); CREATE TABLE b (id int)");
    let mut open = scene.cluster.session(DATABASE);
    open.exec("BEGIN; TRUNCATE a");
    let watch = scene.watch();
    scene.session.exec("TRUNCATE b");
    scene.cluster.stop_immediate();
    scene.cluster.start_server();
    drop(open);
    let mut session = scene.cluster.session(DATABASE);
    assert_eq!(watch.told(&mut session), ["replaced b by TRUNCATE TABLE"]);
}

/// The number of the first record that holds all parts.
#[track_caller]
fn position(records: &[String], parts: &[&str]) -> usize {
    let found = records.iter().position(|record| parts.iter().all(|part| record.contains(part)));
    found.unwrap_or_else(|| panic!("no record with {parts:?} in\n{}", records.join("\n")))
}

#[test]
fn in_the_wal_the_commit_of_the_record_precedes_the_first_change_of_the_relation() {
    let mut scene = Scene::with(lazy(), TABLE);
    scene.session.exec("SET synchronous_commit = off");
    let database = scene.session.text("SELECT oid FROM pg_database WHERE datname = 'postgres'");
    for statement in ["VACUUM t", "VACUUM (FREEZE) t", "VACUUM FULL t"] {
        scene.session.exec("DELETE FROM t WHERE id % 5 = 0; UPDATE t SET word = 'x'");
        scene.session.exec("CHECKPOINT");
        let watch = scene.watch();
        let start = scene.session.text("SELECT pg_current_wal_insert_lsn()");
        scene.session.exec(statement);
        // A transaction that commits synchronously flushes what was written before it.
        scene.observer.exec("SET synchronous_commit = on; CREATE TABLE IF NOT EXISTS flushed ()");
        scene.observer.exec("INSERT INTO flushed DEFAULT VALUES");
        let end = scene.observer.text("SELECT pg_current_wal_flush_lsn()");
        let records = wal_records(&scene.cluster, &start, &end);

        let file = before_file(&watch.before, "t");
        let change = if statement == "VACUUM FULL t" {
            // The old file is not written but unlinked, by the commit of the rewrite.
            position(&records, &["COMMIT", &format!("/{database}/{file}")])
        } else {
            position(&records, &[&format!("/{database}/{file} ")])
        };
        let ledger = scene.session.text("SELECT pg_relation_filenode('stillpoint.invalidation')");
        let record = position(&records, &["INSERT", &format!("/{database}/{ledger} ")]);
        let xid = records[record].split_once("tx:").expect("a record has a transaction").1;
        let xid = xid.trim_start().split(',').next().expect("a number");
        let commit = position(&records, &[&format!("tx: {xid:>10}, "), "COMMIT"]);
        assert!(record < commit && commit < change, "{statement}\n{}", records.join("\n"));
    }
}

#[track_caller]
fn before_file(storage: &Storage, label: &str) -> u32 {
    storage.labelled(label).1.filenode
}
