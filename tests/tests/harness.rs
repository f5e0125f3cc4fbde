//! The harness keeps its own promises.

use std::path::Path;

use stillpoint_tests::race::DatabaseState;
use stillpoint_tests::wait_until;
use stillpoint_tests::{Cluster, ClusterOptions, pg_dump, psql, restore_into, table_digest};

#[test]
fn a_cluster_starts_survives_a_crash_and_is_gone_afterwards() {
    let mut cluster = Cluster::start();
    let home = cluster.host().to_owned();
    cluster.create_database("db");
    cluster.session("db").exec("CREATE TABLE t AS SELECT generate_series(1, 10) AS id");
    cluster.restart();
    cluster.stop_immediate();
    cluster.start_server();
    assert_eq!(cluster.session("db").number("SELECT count(*) FROM t"), 10);
    drop(cluster);
    assert!(!home.exists());
}

#[test]
fn two_clusters_run_at_a_time_with_settings_of_their_own() {
    let one = ClusterOptions::default().setting("work_mem = '7MB'").tcp().start();
    let two = ClusterOptions::default().durable().start();
    assert_eq!(one.session("postgres").text("SHOW work_mem"), "7MB");
    assert_eq!(one.session("postgres").text("SHOW fsync"), "off");
    assert_eq!(two.session("postgres").text("SHOW fsync"), "on");
}

#[test]
#[should_panic(expected = "unexpected in the server's log")]
fn an_unexpected_error_in_the_log_fails_the_test() {
    let cluster = Cluster::start();
    assert!(cluster.session("postgres").try_exec("SELECT 1/0").is_err());
}

#[test]
fn an_allowed_error_in_the_log_does_not() {
    let cluster = Cluster::start();
    cluster.allow_log("division by zero");
    assert!(cluster.session("postgres").try_exec("SELECT 1/0").is_err());
}

#[test]
fn a_statement_in_the_background_is_seen_to_wait_and_then_finishes() {
    let cluster = Cluster::start();
    let mut holder = cluster.session("postgres");
    holder.exec("CREATE TABLE t ()");
    holder.exec("BEGIN; LOCK TABLE t");
    let waiter = cluster.session("postgres").start("BEGIN; LOCK TABLE t IN ACCESS SHARE MODE");
    let mut observer = cluster.session("postgres");
    let blocked = format!("SELECT {} = ANY (pg_blocking_pids({}))", holder.pid(), waiter.pid());
    wait_until(&mut observer, &blocked);
    holder.exec("COMMIT");
    let mut waiter = waiter.finish();
    assert_eq!(waiter.number("SELECT count(*) FROM t"), 0);
}

#[test]
fn a_stock_archive_is_restored_to_the_same_digests() {
    let cluster = Cluster::start();
    cluster.create_database("db");
    let mut session = cluster.session("db");
    session.exec(
        "CREATE TABLE t AS SELECT i AS id, md5(i::text) AS word FROM generate_series(1, 500) i",
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    pg_dump(&cluster, "db").arg("-Fd").arg("-f").arg(&archive).run().assert_exit(0);
    restore_into(&cluster, Path::new(&archive), "restored");
    let mut restored = cluster.session("restored");
    let digest = table_digest(&mut session, "public.t");
    assert_eq!(digest.rows, 500);
    assert_eq!(digest, table_digest(&mut restored, "public.t"));
    restored.exec("UPDATE t SET word = 'x' WHERE id = 7");
    assert_ne!(digest, table_digest(&mut restored, "public.t"));
    let counted = psql(&cluster, "restored").args(["-Atc", "SELECT count(*) FROM t"]).run();
    assert_eq!(counted.assert_exit(0).stdout, "500\n");
}

#[test]
fn a_databases_state_tells_every_kind_of_difference() {
    let cluster = Cluster::start();
    cluster.create_database("db");
    let mut session = cluster.session("db");
    session.exec("CREATE TABLE t AS SELECT generate_series(1, 10) AS id");
    session.exec("CREATE TABLE parent (id int) PARTITION BY RANGE (id)");
    session.exec("CREATE TABLE leaf PARTITION OF parent FOR VALUES FROM (1) TO (9)");
    session.exec("CREATE SEQUENCE s");
    let state = DatabaseState::read(&mut session);
    assert_eq!(state.difference(&DatabaseState::read(&mut session)), "");
    for change in [
        "DELETE FROM t WHERE id = 3",
        "UPDATE t SET id = 11 WHERE id = 10",
        "ALTER TABLE t ADD COLUMN word text",
        "ALTER TABLE t ALTER COLUMN id TYPE bigint",
        "ALTER TABLE t SET UNLOGGED",
        "CREATE INDEX ON t (id)",
        "ALTER TABLE parent DETACH PARTITION leaf",
        "DROP TABLE leaf",
        "ALTER TABLE t RENAME TO u",
        "SELECT setval('s', 7)",
        "CREATE TABLE new ()",
    ] {
        session.exec("BEGIN");
        session.exec(change);
        let changed = DatabaseState::read(&mut session);
        session.exec("ROLLBACK");
        // Sequences are not rolled back.
        session.exec("SELECT setval('s', 1, false)");
        assert_ne!(state.difference(&changed), "", "{change}");
    }
}
