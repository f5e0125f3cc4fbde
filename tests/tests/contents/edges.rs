//! Databases with hardly anything in them, or of which hardly anything can be had.

use std::fs;

use stillpoint_tests::{Cluster, Stillpoint, restore_into, wait_until};

use crate::compare::{Data, WAYS, assert_dumped_as_by_pg_dump};

#[test]
fn an_empty_database_is_dumped() {
    let cluster = Cluster::preloaded();
    cluster.create_database("source");
    cluster.create_extension("source");
    assert_dumped_as_by_pg_dump(&cluster, "source", WAYS);
}

#[test]
fn large_objects_without_any_table_are_dumped() {
    let cluster = Cluster::start();
    cluster.create_database("source");
    cluster.session("source").exec(
        "SELECT lo_from_bytea(i, decode(md5(i::text), 'hex')) FROM generate_series(20000, 20100) AS i",
    );
    assert_dumped_as_by_pg_dump(&cluster, "source", &[&["-j2"]]);
}

#[test]
fn sequences_without_any_table_are_dumped() {
    let cluster = Cluster::start();
    cluster.create_database("source");
    cluster.session("source").exec("CREATE SEQUENCE s; SELECT setval('s', 5, false)");
    assert_dumped_as_by_pg_dump(&cluster, "source", &[&["-j2"]]);
}

#[test]
fn an_archive_from_which_every_table_is_left_out_restores() {
    let cluster = Cluster::start();
    cluster.create_database("source");
    let mut holder = cluster.session("source");
    holder.exec(
        "CREATE TABLE t (id serial PRIMARY KEY); INSERT INTO t SELECT FROM generate_series(1, 9); \
         CREATE TABLE u (t int REFERENCES t); INSERT INTO u VALUES (1); \
         CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM t; \
         SELECT lo_from_bytea(4711, 'abc')",
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");

    // pg_dump waits for the holder, TRUNCATE for pg_dump, our worker for TRUNCATE.
    let mut observer = cluster.session("source");
    holder.exec("BEGIN; LOCK TABLE t, u");
    let blocked_by = |pid: i32, who: &str| {
        format!(
            "SELECT EXISTS (SELECT FROM pg_stat_activity \
                             WHERE {pid} = ANY (pg_blocking_pids(pid)) AND {who})"
        )
    };
    let dump = Stillpoint::dump(&cluster, "source", &archive).args(["--attempts", "1"]).spawn();
    wait_until(&mut observer, &blocked_by(holder.pid(), "application_name LIKE 'pg_dump%'"));
    let truncate = cluster.session("source").start("TRUNCATE t, u");
    wait_until(&mut observer, &blocked_by(holder.pid(), &format!("pid = {}", truncate.pid())));
    holder.exec("COMMIT");
    drop(truncate.finish());

    let finished = dump.wait();
    finished.assert_exit(2);
    let report = finished.report();
    assert_eq!(report["left_out"].as_array().map(Vec::len), Some(2), "{}", finished.scene());
    assert_eq!(report["attempts"][0]["outcome"], "left_out", "{}", finished.scene());
    restore_into(&cluster, &archive, "restored");
    let restored = Data::read(&mut cluster.session("restored"));
    for table in ["public.t", "public.u"] {
        assert_eq!(restored.get(table), Some("0 rows, checksum 0"));
    }
    let source = Data::read(&mut observer);
    for same in ["large object 4711", "public.t_id_seq"] {
        assert_eq!(restored.get(same), source.get(same));
    }
    let mut restored = cluster.session("restored");
    assert_eq!(restored.number("SELECT count FROM m"), 0);
}

#[test]
fn a_standby_is_dumped_without_the_rows_of_unlogged_tables() {
    let mut cluster = Cluster::start();
    cluster.allow_log("specified neither primary_conninfo nor restore_command");
    cluster.create_database("source");
    cluster.session("source").exec(
        "CREATE UNLOGGED TABLE unlogged (id int GENERATED ALWAYS AS IDENTITY); \
         INSERT INTO unlogged SELECT FROM generate_series(1, 3); \
         CREATE TABLE logged (id serial); INSERT INTO logged SELECT FROM generate_series(1, 4)",
    );
    // A standby of nobody: it replays what is there and waits for more.
    cluster.stop();
    let signal = cluster.data_directory().join("standby.signal");
    fs::write(&signal, "").expect("the data directory can be written");
    cluster.start_server();
    assert!(cluster.session("postgres").yes("SELECT pg_is_in_recovery()"));

    let directory = tempfile::tempdir().expect("a temporary directory");
    let (ours, stock) = (directory.path().join("ours"), directory.path().join("stock"));
    let finished = Stillpoint::dump(&cluster, "source", &ours).arg("-j2").run();
    finished.assert_exit(0).assert_stderr(
        "warning: table \"public\".\"unlogged\" is unlogged: a standby has no rows of it",
    );
    stillpoint_tests::pg_dump(&cluster, "source")
        .arg("-Fd")
        .arg("-f")
        .arg(&stock)
        .run()
        .assert_exit(0);

    cluster.stop();
    fs::remove_file(&signal).expect("the data directory can be written");
    cluster.start_server();
    restore_into(&cluster, &ours, "restored");
    restore_into(&cluster, &stock, "by_pg_dump");
    let found = Data::read(&mut cluster.session("restored"));
    found.assert_equals(&Data::read(&mut cluster.session("by_pg_dump")), "not the same", &finished);
    assert!(found.get("public.logged").is_some_and(|rows| rows.starts_with("4 rows")));
}
