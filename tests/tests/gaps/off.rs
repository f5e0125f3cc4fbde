//! A superuser switches recording off, or lets statements go on that could not be recorded.

use postgres::error::SqlState;
use stillpoint_tests::{Cluster, ClusterOptions, Session, wait_until};

use crate::{DATABASE, INTERRUPTED, Scene, TOOL, since, waits_behind};

const OFF: &str = "SET stillpoint.enabled = off";

/// A second session, which records nothing.
#[track_caller]
fn off(scene: &Scene) -> Session {
    let mut session = scene.cluster.session(DATABASE);
    session.exec(OFF);
    session
}

/// No bookmark is to be had, and whoever asks is told who is in the way.
#[track_caller]
fn assert_no_bookmark_because_of(scene: &mut Scene, who: &str) {
    for sql in [
        "SELECT stillpoint.bookmark()",
        &format!("SELECT * FROM stillpoint.begin_backup('{TOOL}')"),
    ] {
        let error = scene.refusal(sql);
        assert_eq!(error.code(), &SqlState::OBJECT_IN_USE, "{error:?}");
        assert!(error.detail().is_some_and(|detail| detail.contains(who)), "{error:?}");
        assert_eq!(error.hint(), Some("Try again when it has ended."), "{error:?}");
    }
}

#[test]
fn what_is_replaced_while_recording_is_off_leaves_a_gap() {
    for statement in [
        "TRUNCATE t",
        "DROP TABLE t",
        "VACUUM t",
        "VACUUM FULL t",
        "CLUSTER t USING t_pkey",
        "REINDEX TABLE t",
        "REINDEX TABLE CONCURRENTLY t",
        "ALTER TABLE t ALTER id TYPE bigint",
        "BEGIN; SAVEPOINT s; TRUNCATE t; RELEASE s; COMMIT",
        "DO $$ BEGIN TRUNCATE t; END $$",
        "REINDEX INDEX pg_class_oid_index",
    ] {
        let mut scene = Scene::new();
        let base = scene.base();
        off(&scene).exec(statement);
        scene.assert_gap(&base, INTERRUPTED);
    }
}

#[test]
fn what_is_replaced_while_recording_is_off_for_one_transaction_leaves_a_gap() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.session.exec("BEGIN; SET LOCAL stillpoint.enabled = off; TRUNCATE t; COMMIT");
    scene.assert_gap(&base, INTERRUPTED);
}

#[test]
fn a_gap_of_one_session_survives_crashes() {
    let mut scene = Scene::new();
    let base = scene.base();
    off(&scene).exec("TRUNCATE t");
    scene.wait_until_start_is_noted();
    scene.meanwhile(Cluster::kill, |_| {});
    scene.assert_gap(&base, INTERRUPTED);
}

#[test]
fn recording_that_is_off_while_nothing_is_replaced_leaves_no_gap() {
    let mut scene = Scene::new();
    let base = scene.base();
    let mut session = off(&scene);
    for statement in [
        "SELECT count(*) FROM t",
        "INSERT INTO t VALUES (1000, 'x'); UPDATE t SET word = 'y'; DELETE FROM t",
        "CREATE TABLE new (id int PRIMARY KEY); INSERT INTO new VALUES (1)",
        "ALTER TABLE t ADD COLUMN more int",
        "ANALYZE t",
        "CREATE TEMPORARY TABLE mine (id int PRIMARY KEY, word text)",
        "INSERT INTO mine VALUES (1, 'x'); TRUNCATE mine",
        "VACUUM FULL mine",
        "VACUUM mine",
        "CLUSTER mine USING mine_pkey",
        "DROP TABLE mine",
        "BEGIN; TRUNCATE t; ROLLBACK",
        "BEGIN; SAVEPOINT s; TRUNCATE t; ROLLBACK TO s; COMMIT",
        "BEGIN; CREATE TABLE brief (id int); TRUNCATE brief; DROP TABLE brief; COMMIT",
    ] {
        session.exec(statement);
    }
    let error = crate::refusal(&scene.cluster, &mut session, "BEGIN; VACUUM t");
    assert_eq!(error.code(), &SqlState::ACTIVE_SQL_TRANSACTION, "{error:?}");
    drop(session);
    scene.assert_whole(&base);
}

#[test]
fn recording_that_is_off_in_a_database_without_the_extension_leaves_no_gap() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.cluster.create_database("other");
    let mut other = scene.cluster.session("other");
    other.exec("CREATE TABLE t (id int); SET stillpoint.enabled = off");
    other.exec("TRUNCATE t");
    other.exec("VACUUM t");
    scene.assert_whole(&base);
}

#[test]
fn no_bookmark_is_taken_while_a_vacuum_works_in_place_unrecorded() {
    let mut scene = Scene::new();
    let base = scene.base();
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE");
    let vacuum = off(&scene).start("VACUUM t");
    wait_until(&mut scene.session, &waits_behind(vacuum.pid(), holder.pid()));
    assert_no_bookmark_because_of(&mut scene, &format!("process {}", vacuum.pid()));
    // The one from before is no good already.
    let error = scene.refusal(&since(&base.bookmark));
    crate::assert_unusable(&error, INTERRUPTED);
    holder.exec("COMMIT");
    drop(vacuum.finish());
    scene.assert_gap(&base, INTERRUPTED);
}

#[test]
fn an_unrecorded_vacuum_that_is_ended_from_outside_is_not_in_the_way_of_bookmarks() {
    let mut scene = Scene::new();
    let base = scene.base();
    for function in ["pg_cancel_backend", "pg_terminate_backend"] {
        let mut holder = scene.cluster.session(DATABASE);
        holder.exec("BEGIN; LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE");
        let vacuum = off(&scene).start("VACUUM t");
        wait_until(&mut scene.session, &waits_behind(vacuum.pid(), holder.pid()));
        scene.cluster.allow_log("canceling statement due to user request");
        let pid = vacuum.pid();
        assert!(scene.session.yes(&format!("SELECT {function}({pid})")));
        let (session, result) = vacuum.result();
        assert!(result.is_err());
        if function == "pg_cancel_backend" {
            let _ = crate::take_bookmark(&mut scene.session);
        }
        drop(session);
        let gone = format!("SELECT NOT EXISTS (SELECT FROM pg_locks WHERE pid = {pid})");
        wait_until(&mut scene.session, &gone);
    }
    scene.assert_gap(&base, INTERRUPTED);
}

#[test]
fn a_bookmark_from_before_an_unrecorded_change_commits_is_no_good_afterwards() {
    let mut scene = Scene::new();
    let mut session = off(&scene);
    session.exec("BEGIN; TRUNCATE t");
    // It can still be rolled back.
    let base = scene.base();
    session.exec("COMMIT");
    scene.assert_gap(&base, INTERRUPTED);
}

#[test]
fn no_bookmark_is_taken_while_an_unrecorded_change_commits() {
    let nobody = "synchronous_standby_names = 'nobody'";
    let mut scene = Scene::with(ClusterOptions::default().setting(nobody));
    let base = scene.base();
    let mut session = off(&scene);
    // Its commit waits, written and not yet seen by others.
    session.exec("SET synchronous_commit = on");
    let commits = session.start("TRUNCATE t");
    let pid = commits.pid();
    let waits = format!(
        "SELECT EXISTS (SELECT FROM pg_stat_activity
                         WHERE pid = {pid} AND wait_event = 'SyncRep')"
    );
    wait_until(&mut scene.session, &waits);
    assert_no_bookmark_because_of(&mut scene, &format!("process {pid}"));
    scene.cluster.append_setting("synchronous_standby_names = ''");
    assert!(scene.session.yes("SELECT pg_reload_conf()"));
    drop(commits.finish());
    scene.assert_gap(&base, INTERRUPTED);
}

#[test]
fn no_bookmark_is_taken_until_an_unrecorded_prepared_transaction_has_ended() {
    for end in ["COMMIT", "ROLLBACK"] {
        let mut scene = Scene::new();
        let base = scene.base();
        off(&scene).exec("BEGIN; TRUNCATE t; PREPARE TRANSACTION 'p'");
        assert_no_bookmark_because_of(&mut scene, "a prepared transaction");
        crate::assert_unusable(&scene.refusal(&since(&base.bookmark)), INTERRUPTED);
        // It outlives the server that has prepared it.
        scene.wait_until_start_is_noted();
        scene.meanwhile(Cluster::stop, |_| {});
        assert_no_bookmark_because_of(&mut scene, "a prepared transaction");
        scene.wait_until_start_is_noted();
        scene.meanwhile(Cluster::kill, |_| {});
        assert_no_bookmark_because_of(&mut scene, "a prepared transaction");
        scene.session.exec(&format!("{end} PREPARED 'p'"));
        scene.assert_gap(&base, INTERRUPTED);
    }
}
