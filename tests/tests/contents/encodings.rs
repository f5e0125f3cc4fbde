//! Databases that are not in UTF-8.

use stillpoint_tests::{Cluster, Stillpoint};

use crate::compare::assert_dumped_as_by_pg_dump;

fn create(cluster: &Cluster, encoding: &str) {
    cluster.session("postgres").exec(&format!(
        "CREATE DATABASE source TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"
    ));
}

#[test]
fn a_database_in_latin1_is_dumped_with_its_data_and_names() {
    let cluster = Cluster::start();
    create(&cluster, "LATIN1");
    cluster.session("source").exec(
        "CREATE SCHEMA \"größe\"; \
         CREATE TABLE \"größe\".\"Äußerung\" (\"número\" serial, \"ÿ\" text DEFAULT 'ÿ'); \
         INSERT INTO \"größe\".\"Äußerung\" (\"ÿ\") SELECT chr(i) FROM generate_series(1, 255) AS i; \
         COMMENT ON TABLE \"größe\".\"Äußerung\" IS 'é'; \
         CREATE VIEW \"größe\".v AS SELECT * FROM \"größe\".\"Äußerung\" WHERE \"ÿ\" <> 'ß'; \
         CREATE MATERIALIZED VIEW \"größe\".\"ü\" AS SELECT \"ÿ\" FROM \"größe\".v",
    );
    assert_dumped_as_by_pg_dump(&cluster, "source", &[&["-j2"]]);
}

#[test]
fn bytes_without_an_encoding_are_dumped_as_they_are() {
    let cluster = Cluster::start();
    create(&cluster, "SQL_ASCII");
    cluster.session("source").exec(
        "CREATE TABLE bytes (id int, word text); \
         INSERT INTO bytes SELECT i, chr(i) || 'x' || chr(i) FROM generate_series(1, 255) AS i; \
         INSERT INTO bytes VALUES (256, E'\\xc3\\x28'), (257, E'\\xed\\xa0\\x80'), (258, 'ä')",
    );
    assert_dumped_as_by_pg_dump(&cluster, "source", &[&["-j2"]]);
}

#[test]
fn a_name_that_is_no_utf8_is_a_clear_error() {
    let cluster = Cluster::start();
    create(&cluster, "SQL_ASCII");
    cluster.allow_log("invalid byte sequence for encoding \"UTF8\"");
    // pg_dump is running by then.
    cluster.allow_cancelled_statements();
    cluster.session("source").exec(
        "DO $$ BEGIN EXECUTE 'CREATE TABLE ' || quote_ident(E'caf\\xe9') || ' (id int)'; END $$",
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    let finished = Stillpoint::dump(&cluster, "source", &archive).run();
    finished.assert_exit(1).assert_stderr("invalid byte sequence for encoding \"UTF8\"");
    assert!(!archive.exists() && !archive.with_extension("partial").exists());
}

#[test]
fn a_definition_that_is_no_utf8_is_a_clear_error() {
    let cluster = Cluster::start();
    create(&cluster, "SQL_ASCII");
    cluster.session("source").exec("CREATE TABLE t (id int, word text DEFAULT E'caf\\xe9')");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    let finished = Stillpoint::dump(&cluster, "source", &archive).run();
    finished.assert_exit(1).assert_stderr("hint: Definitions that are not in UTF-8");
    assert!(!archive.exists() && !archive.with_extension("partial").exists());
}

#[test]
fn a_byte_that_its_encoding_does_not_have_is_a_clear_error() {
    let cluster = Cluster::start();
    create(&cluster, "WIN1252");
    cluster.allow_log("has no equivalent in encoding \"UTF8\"");
    // pg_dump may still be running.
    cluster.allow_cancelled_statements();
    cluster.session("source").exec(
        "CREATE TABLE t (word text); \
         INSERT INTO t VALUES (convert_from('\\x61', 'WIN1252')), (E'\\x81')",
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    let finished = Stillpoint::dump(&cluster, "source", &archive).run();
    finished.assert_exit(1).assert_stderr(
        "error: could not export table \"public\".\"t\": could not read its rows: \
         character with byte sequence 0x81 in encoding \"WIN1252\" has no equivalent in encoding \
         \"UTF8\"",
    );
    assert!(!archive.exists() && !archive.with_extension("partial").exists());
}
