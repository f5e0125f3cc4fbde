//! What the server refuses leaves no row, no committed work, and its own error.

use std::fs;

use stillpoint_tests::ledger::Mark;
use stillpoint_tests::{Cluster, psql};

use crate::{DATABASE, Scene, T, refusal};

/// Statements that are refused, as psql sends them: `\;` makes several statements one message.
const REFUSED: &str = r#"
\set VERBOSITY verbose
CREATE TABLE t (id int PRIMARY KEY, word text);
CREATE TABLE witness (id int);
CREATE VIEW v AS SELECT * FROM t;
CREATE TABLE p (id int) PARTITION BY LIST (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
CREATE INDEX p_id ON p (id);
CREATE MATERIALIZED VIEW m AS SELECT 1 AS one;
CREATE FUNCTION run(sql text) RETURNS void LANGUAGE plpgsql AS 'BEGIN EXECUTE sql; END';
CREATE PROCEDURE call_run(sql text) LANGUAGE plpgsql AS 'BEGIN EXECUTE sql; END';
CREATE ROLE stranger;
CREATE SCHEMA secret;
CREATE TABLE secret.s (id int PRIMARY KEY);
SELECT 'the setting is done' AS note;

BEGIN; INSERT INTO witness VALUES (1); VACUUM t; COMMIT;
BEGIN; INSERT INTO witness VALUES (2); VACUUM FULL t; COMMIT;
BEGIN; INSERT INTO witness VALUES (3); VACUUM; COMMIT;
BEGIN; INSERT INTO witness VALUES (4); CLUSTER; COMMIT;
BEGIN; INSERT INTO witness VALUES (5); REINDEX SCHEMA public; COMMIT;
BEGIN; INSERT INTO witness VALUES (6); REINDEX DATABASE postgres; COMMIT;
BEGIN; INSERT INTO witness VALUES (7); REINDEX TABLE CONCURRENTLY t; COMMIT;
BEGIN; INSERT INTO witness VALUES (8); REINDEX TABLE p; COMMIT;
BEGIN; INSERT INTO witness VALUES (9); REINDEX INDEX p_id; COMMIT;
BEGIN; INSERT INTO witness VALUES (10); CLUSTER p USING p_id; COMMIT;
BEGIN; SAVEPOINT s; VACUUM t; ROLLBACK TO s; VACUUM t; COMMIT;
BEGIN; SET ROLE stranger; VACUUM secret.s; COMMIT;
BEGIN; SET ROLE stranger; REINDEX TABLE CONCURRENTLY secret.s; COMMIT;
BEGIN; VACUUM other.public.t; COMMIT;
BEGIN; VACUUM missing.t; COMMIT;
BEGIN; VACUUM missing; COMMIT;
INSERT INTO witness VALUES (20)\; VACUUM t;
VACUUM t\; INSERT INTO witness VALUES (21);
INSERT INTO witness VALUES (22)\; REINDEX TABLE CONCURRENTLY t;
INSERT INTO witness VALUES (23)\; CLUSTER;
SELECT run('VACUUM t');
SELECT run('VACUUM FULL t');
SELECT run('REINDEX TABLE CONCURRENTLY t');
CALL call_run('VACUUM t');
DO 'BEGIN VACUUM t; END';
DO 'BEGIN VACUUM t; EXCEPTION WHEN OTHERS THEN RAISE NOTICE ''%'', SQLERRM; END';
VACUUM missing;
VACUUM (BOGUS) t;
VACUUM other.public.t;
VACUUM missing.t;
TRUNCATE other.public.t;
CLUSTER other.public.t;
REINDEX TABLE CONCURRENTLY other.public.t;
VACUUM v;
CLUSTER t;
CLUSTER t USING missing;
CLUSTER missing USING t_pkey;
CLUSTER v;
CLUSTER (BOGUS) t;
REINDEX INDEX t;
REINDEX TABLE t_pkey;
REINDEX TABLE missing;
REINDEX SCHEMA missing;
REINDEX DATABASE missing;
REINDEX SYSTEM missing;
REINDEX SYSTEM CONCURRENTLY postgres;
REINDEX (BOGUS) TABLE t;
REINDEX TABLE CONCURRENTLY pg_class;
TRUNCATE missing;
TRUNCATE v;
TRUNCATE t, missing;
TRUNCATE ONLY p;
TRUNCATE pg_class;
TRUNCATE t_pkey;
REFRESH MATERIALIZED VIEW t;
REFRESH MATERIALIZED VIEW missing;
REFRESH MATERIALIZED VIEW CONCURRENTLY m;
ALTER TABLE missing SET UNLOGGED;
ALTER TABLE IF EXISTS missing SET UNLOGGED;
ALTER TABLE t SET TABLESPACE missing;
ALTER TABLE t SET TABLESPACE pg_global;
ALTER TABLE v SET LOGGED;
ALTER TABLE t SET ACCESS METHOD missing;
ALTER TABLE ALL IN TABLESPACE missing SET TABLESPACE pg_default;
ALTER TABLE ALL IN TABLESPACE pg_default OWNED BY missing SET TABLESPACE pg_default;
ALTER TABLE missing.t SET UNLOGGED;
ALTER INDEX missing SET TABLESPACE pg_default;

SET ROLE stranger;
VACUUM t;
VACUUM FULL t;
VACUUM t, witness;
VACUUM secret.s;
VACUUM (FULL, PARALLEL 2) secret.s;
TRUNCATE secret.s;
CLUSTER secret.s;
REINDEX TABLE CONCURRENTLY secret.s;
REINDEX INDEX CONCURRENTLY secret.s_pkey;
ALTER TABLE secret.s SET UNLOGGED;
CLUSTER t USING t_pkey;
REINDEX TABLE t;
REINDEX INDEX t_pkey;
REINDEX SCHEMA public;
REINDEX DATABASE postgres;
REINDEX TABLE CONCURRENTLY t;
TRUNCATE t;
REFRESH MATERIALIZED VIEW m;
ALTER TABLE t SET UNLOGGED;
ALTER INDEX t_pkey SET TABLESPACE pg_default;
CLUSTER;
RESET ROLE;
SELECT * FROM witness;
"#;

/// Statements in which the server finds a mistake only when it is about to work, some of them
/// after it has done a part of it.
const REFUSED_LATE: &str = r#"
\set VERBOSITY verbose
CREATE TABLE t (id int PRIMARY KEY, word text);
VACUUM FULL missing, t;
VACUUM t, missing;
VACUUM (FULL, PARALLEL 2) t;
VACUUM (FULL, DISABLE_PAGE_SKIPPING) t;
VACUUM (PARALLEL 2000) t;
VACUUM (SKIP_LOCKED, PARALLEL -1) t;
VACUUM (INDEX_CLEANUP bogus) t;
VACUUM (FULL bogus) t;
VACUUM t (id);
VACUUM (ANALYZE) t (missing);
REINDEX (TABLESPACE pg_global) TABLE CONCURRENTLY t;
"#;

/// Everything that psql prints of the script.
#[track_caller]
fn output(cluster: &Cluster, sql: &str) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let (script, output) = (directory.path().join("script"), directory.path().join("output"));
    fs::write(&script, sql).expect("the script can be written");
    let finished = psql(cluster, DATABASE)
        .args(["-a", "-v", "ON_ERROR_STOP=0", "-f"])
        .arg(&script)
        .arg("-o")
        .arg(&output)
        .run();
    finished.assert_exit(0);
    // What went wrong names the script's path, which differs.
    let script = script.display().to_string();
    format!(
        "{}\n{}\n{}",
        finished.stdout,
        finished.stderr.replace(&script, "script"),
        fs::read_to_string(&output).expect("psql has written it")
    )
}

/// Runs the script on a cluster without the library and on one with it; fails if psql is told
/// anything else. Gives the ledger's rows of the second.
#[track_caller]
fn rows_after(sql: &str) -> (Scene, Vec<String>) {
    let without = Cluster::start();
    let expected = output(&without, sql);
    without.forget_log();
    assert!(expected.contains("ERROR:  "), "{expected}");

    let mut scene = Scene::new("");
    let mark = Mark::now(&mut scene.observer);
    let found = output(&scene.cluster, sql);
    scene.cluster.forget_log();
    let differences: Vec<_> = expected
        .lines()
        .zip(found.lines())
        .filter(|(expected, found)| expected != found)
        .map(|(expected, found)| format!("without: {expected}\nwith:    {found}"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(expected.lines().count(), found.lines().count());
    let rows = scene.observer.texts(&format!(
        "SELECT concat_ws(' ', effect, relation_name, command) FROM stillpoint.invalidation
          WHERE {}",
        mark.since()
    ));
    (scene, rows)
}

#[test]
fn refused_statements_leave_no_row_and_have_the_servers_own_words() {
    let (_scene, rows) = rows_after(REFUSED);
    assert_eq!(rows, [""; 0]);
}

#[test]
fn statements_refused_late_are_announced_at_most_and_closed_by_the_next() {
    let (mut scene, rows) = rows_after(REFUSED_LATE);
    assert!(rows.iter().all(|row| row.starts_with("announced ")), "{rows:?}");
    scene.session.exec("VACUUM t");
    assert_eq!(scene.open(), [""; 0]);
}

#[test]
fn a_standby_refuses_in_the_servers_own_words_and_records_nothing() {
    let scene = Scene::new(T);
    let standby = scene.cluster.start_standby();
    let mut session = standby.session(DATABASE);
    for (statement, message) in [
        ("TRUNCATE t", "cannot execute TRUNCATE TABLE in a read-only transaction"),
        ("VACUUM t", "cannot execute VACUUM during recovery"),
        ("CLUSTER t USING t_pkey", "cannot execute CLUSTER during recovery"),
        ("REINDEX TABLE CONCURRENTLY t", "cannot execute REINDEX during recovery"),
        ("ALTER TABLE t SET UNLOGGED", "cannot execute ALTER TABLE in a read-only transaction"),
    ] {
        let error = refusal(&standby, &mut session, statement);
        assert_eq!(error.message(), message, "{statement}");
    }
    assert_eq!(session.text("SELECT recording::text FROM stillpoint.status()"), "false");
}

#[test]
fn a_refused_vacuum_commits_nothing_of_the_users() {
    let mut scene = Scene::new(T);
    scene.session.exec("CREATE TABLE witness (id int)");
    let error = scene.refusal("INSERT INTO witness VALUES (1); VACUUM t");
    assert_eq!(error.message(), "VACUUM cannot run inside a transaction block");
    assert_eq!(scene.observer.number("SELECT count(*) FROM witness"), 0);
    assert_eq!(scene.observer.number("SELECT count(*) FROM stillpoint.invalidation"), 0);
}

#[test]
fn a_vacuum_of_what_belongs_to_others_is_skipped_and_not_told() {
    let mut scene = Scene::new(T);
    scene.session.exec(
        "CREATE ROLE stranger LOGIN; CREATE TABLE own (id int); ALTER TABLE own OWNER TO stranger",
    );
    let mut stranger = scene.cluster.session_as(DATABASE, "stranger");
    scene.cluster.allow_log("skipping");
    scene.cluster.allow_log("permission denied");
    let watch = scene.watch();
    stranger.exec("VACUUM t, own");
    assert_eq!(watch.told(&mut scene.observer), ["pages own by VACUUM"]);
    let watch = scene.watch();
    stranger.exec("VACUUM FULL t");
    stranger.exec("VACUUM");
    let told = watch.told(&mut scene.observer);
    assert_eq!(told, ["pages own by VACUUM"]);
}
