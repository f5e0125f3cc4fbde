//! `changed_relations()` tells a rewrite that keeps every row from one that does not.

use stillpoint_tests::{ClusterOptions, Session};

use crate::{DATABASE, Scene, T};

/// What is told of `t` to a transaction whose snapshot is older than the statements: whether it
/// was replaced, and whether with all rows.
#[track_caller]
fn told(scene: &mut Scene, statements: &[&str]) -> (bool, bool) {
    scene.reset(T);
    let mut dump = begin(scene);
    for statement in statements {
        scene.session.exec(statement);
    }
    answer(&mut dump)
}

#[track_caller]
fn begin(scene: &mut Scene) -> Session {
    let mut dump = scene.cluster.session(DATABASE);
    dump.exec("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    dump
}

#[track_caller]
fn answer(dump: &mut Session) -> (bool, bool) {
    dump.exec("LOCK TABLE t IN ACCESS SHARE MODE");
    let rows = dump.rows(
        "SELECT 'replaced' = ANY (reasons), rows_kept
           FROM stillpoint.changed_relations(ARRAY['t'::regclass::oid])",
    );
    assert_eq!(rows.len(), 1, "{rows:?}");
    let yes = |column: usize| rows[0][column].as_deref() == Some("t");
    (yes(0), yes(1))
}

const KEPT: (bool, bool) = (true, true);
const LOST: (bool, bool) = (true, false);

#[test]
fn rewrites_that_copy_every_row_version_keep_the_rows() {
    let mut scene = Scene::new("");
    for statements in [
        &["VACUUM FULL t"][..],
        &["CLUSTER t USING t_pkey"],
        &["VACUUM (FULL, FREEZE, ANALYZE) t"],
        &[
            "UPDATE t SET word = 'x' WHERE id % 3 = 0; DELETE FROM t WHERE id % 5 = 0",
            "VACUUM FULL t",
        ],
        &["CLUSTER t USING t_pkey", "VACUUM FULL t", "CLUSTER t"],
        &["VACUUM FULL"],
        &["VACUUM FULL t, t"],
        &["ALTER TABLE t CLUSTER ON t_pkey", "CLUSTER"],
        &[
            "VACUUM FULL t",
            "VACUUM t",
            "ANALYZE t",
            "REINDEX TABLE t",
            "INSERT INTO t VALUES (0, '')",
        ],
        &["CREATE TABLE other (id int)", "TRUNCATE other", "VACUUM FULL t", "DROP TABLE other"],
    ] {
        assert_eq!(told(&mut scene, statements), KEPT, "{statements:?}");
    }
}

#[test]
fn what_was_read_under_the_old_snapshot_is_still_there() {
    let mut scene = Scene::new(T);
    let mut dump = begin(&mut scene);
    scene.session.exec("UPDATE t SET word = 'x' WHERE id % 3 = 0; DELETE FROM t WHERE id % 5 = 0");
    scene.session.exec("CLUSTER t USING t_pkey");
    scene.session.exec("DELETE FROM t WHERE id % 2 = 0");
    scene.session.exec("VACUUM FULL t");
    assert_eq!(answer(&mut dump), KEPT);
    assert_eq!(dump.number("SELECT count(*) FROM t WHERE word = id::text"), 100);
}

#[test]
fn a_chain_with_one_link_that_loses_rows_loses_them() {
    let mut scene = Scene::new("");
    for statements in [
        &["TRUNCATE t"][..],
        &["VACUUM FULL t", "TRUNCATE t"],
        &["TRUNCATE t", "VACUUM FULL t"],
        &["VACUUM FULL t", "ALTER TABLE t ALTER id TYPE bigint", "VACUUM FULL t"],
        &["CLUSTER t USING t_pkey", "ALTER TABLE t SET UNLOGGED", "VACUUM FULL t"],
    ] {
        assert_eq!(told(&mut scene, statements), LOST, "{statements:?}");
    }
}

#[test]
fn one_transaction_of_several_statements_is_no_proof() {
    let mut scene = Scene::new("");
    for statements in [
        &["BEGIN; TRUNCATE t; CLUSTER t USING t_pkey; COMMIT"][..],
        &["BEGIN; CLUSTER t USING t_pkey; TRUNCATE t; COMMIT"],
        &["BEGIN; DELETE FROM t; CLUSTER t USING t_pkey; TRUNCATE t; COMMIT"],
        &["BEGIN; ALTER TABLE t ALTER id TYPE bigint; CLUSTER t USING t_pkey; COMMIT"],
        &["DO 'BEGIN TRUNCATE t; CLUSTER t USING t_pkey; END'"],
        &["CLUSTER t USING t_pkey; TRUNCATE t"],
        &["TRUNCATE t; CLUSTER t USING t_pkey"],
    ] {
        assert_eq!(told(&mut scene, statements), LOST, "{statements:?}");
    }
}

#[test]
fn an_aborted_command_leaves_no_label_behind() {
    let mut scene = Scene::new("");
    scene.cluster.allow_log("division by zero");
    scene.cluster.allow_log("is not an index for table");
    let lost = told(
        &mut scene,
        &["BEGIN; SAVEPOINT s; CLUSTER t USING t_pkey; ROLLBACK TO s; TRUNCATE t; COMMIT"],
    );
    assert_eq!(lost, LOST);
    let lost = told(&mut scene, &["BEGIN; CLUSTER t USING t_pkey; ROLLBACK", "TRUNCATE t"]);
    assert_eq!(lost, LOST);
    let lost = told(
        &mut scene,
        &["DO $$ BEGIN
             BEGIN CLUSTER t USING t_pkey; RAISE division_by_zero;
             EXCEPTION WHEN division_by_zero THEN TRUNCATE t; END;
         END $$"],
    );
    assert_eq!(lost, LOST);

    // The command itself fails, in the session that then does something else.
    scene.reset(T);
    let mut dump = begin(&mut scene);
    assert!(scene.session.try_exec("CLUSTER t USING missing").is_err());
    scene.cluster.allow_log("does not exist");
    // By hand, so that no statement tells what it is.
    scene.session.exec("CREATE TABLE u (LIKE t INCLUDING ALL)");
    scene.session.exec(
        "UPDATE pg_class SET relfilenode =
                (SELECT relfilenode FROM pg_class WHERE oid = 'u'::regclass)
          WHERE oid = 't'::regclass",
    );
    assert_eq!(answer(&mut dump), LOST);
    // Two relations with one file could not both be dropped.
    scene.session.exec("UPDATE pg_class SET relfilenode = 0 WHERE oid = 'u'::regclass");
}

#[test]
fn what_a_full_vacuums_own_functions_do_to_another_table_is_not_its_label() {
    let mut scene = Scene::new(T);
    // An index function that truncates another table while this one is rewritten.
    scene.session.exec(
        "CREATE TABLE u (id int); INSERT INTO u VALUES (1);
         CREATE FUNCTION evil(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
             'BEGIN TRUNCATE public.t; RETURN $1; END';
         SET stillpoint.enabled = on",
    );
    scene.cluster.allow_log("ERROR:  ");
    let _ = scene.session.try_exec("CREATE INDEX ON u (evil(id))");
    scene
        .session
        .exec("INSERT INTO t SELECT i, i FROM generate_series(1, 100) AS i ON CONFLICT DO NOTHING");
    let mut dump = begin(&mut scene);
    if scene.session.try_exec("VACUUM FULL u").is_err() {
        scene.session.exec("TRUNCATE t");
    }
    dump.exec("LOCK TABLE t IN ACCESS SHARE MODE");
    let kept = dump.texts(
        "SELECT rows_kept::text FROM stillpoint.changed_relations(ARRAY['t'::regclass::oid])",
    );
    assert!(kept.iter().all(|kept| kept == "false"), "{kept:?}");
}

#[test]
fn another_access_method_is_not_trusted() {
    let mut scene =
        Scene::new("CREATE ACCESS METHOD heap2 TYPE TABLE HANDLER heap_tableam_handler");
    scene.session.exec("SET default_table_access_method = heap2");
    assert_eq!(told(&mut scene, &["VACUUM FULL t"]), LOST);
}

#[test]
fn a_gap_in_the_recording_is_no_proof() {
    let mut scene = Scene::new("");
    let off = "SET stillpoint.enabled = off";
    let on = "RESET stillpoint.enabled";
    assert_eq!(told(&mut scene, &[off, "VACUUM FULL t", on]), LOST);
    assert_eq!(told(&mut scene, &["VACUUM FULL t", off, "TRUNCATE t", on, "VACUUM FULL t"]), LOST);
    let recreated = ["VACUUM FULL t", "DROP EXTENSION stillpoint; CREATE EXTENSION stillpoint"];
    assert_eq!(told(&mut scene, &recreated), LOST);
}

#[test]
fn on_a_standby_nothing_is_proven() {
    let mut scene = Scene::new(T);
    let standby = scene.cluster.start_standby();
    let mut dump = standby.session(DATABASE);
    dump.exec("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    // From now on the primary keeps what the standby's snapshot sees, and nothing stops the replay.
    let told =
        "SELECT count(*) > 0 AND bool_and(backend_xmin IS NOT NULL) FROM pg_stat_replication";
    stillpoint_tests::wait_until(&mut scene.observer, told);
    scene.session.exec("VACUUM FULL t");
    // Sent is what has been flushed.
    scene.session.exec("SET synchronous_commit = on; CREATE TABLE last ()");
    let now = scene.session.text("SELECT pg_current_wal_flush_lsn()");
    let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{now}'");
    stillpoint_tests::wait_until(&mut standby.session(DATABASE), &replayed);
    assert_eq!(answer(&mut dump), LOST);
}

#[test]
fn with_a_snapshot_that_may_be_too_old_nothing_is_proven() {
    let options = ClusterOptions::default().setting("old_snapshot_threshold = '1d'");
    let mut scene = Scene::new("");
    if scene.cluster.major_version() >= 17 {
        return;
    }
    scene = Scene::with(options, "");
    assert_eq!(told(&mut scene, &["VACUUM FULL t"]), LOST);
}
