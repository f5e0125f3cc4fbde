//! The ledger cannot be written: the statement fails, or is warned about, as the setting says.

use postgres::error::SqlState;
use stillpoint_tests::ledger::Mark;

use crate::held::{Held, hold_in};
use crate::{DATABASE, Scene, T, whole};

/// A ledger that does not take the library's rows.
const BREAK: &str = "ALTER TABLE stillpoint.invalidation RENAME COLUMN effect TO broken;
                     ALTER TABLE stillpoint.invalidation ALTER broken TYPE int USING 0";

const STATEMENTS: [&str; 7] = [
    "TRUNCATE t",
    "CLUSTER t USING t_pkey",
    "REINDEX TABLE t",
    "ALTER TABLE t ALTER id TYPE bigint",
    "VACUUM t",
    "VACUUM FULL t",
    "DROP TABLE t",
];

#[track_caller]
fn file(scene: &mut Scene) -> String {
    scene.observer.text("SELECT pg_relation_filenode('t')")
}

#[test]
fn a_statement_that_cannot_be_recorded_fails_and_changes_nothing() {
    let mut scene = Scene::new(T);
    scene.session.exec("SET stillpoint.enabled = off");
    scene.session.exec(BREAK);
    scene.session.exec("RESET stillpoint.enabled");
    let before = file(&mut scene);
    for statement in STATEMENTS {
        let error = scene.refusal(statement);
        assert_ne!(error.code(), &SqlState::INTERNAL_ERROR, "{statement}: {error}");
        let said = format!("{} {}", error.message(), error.hint().unwrap_or_default());
        assert!(said.contains("stillpoint"), "{statement}: {said}");
        assert_eq!(file(&mut scene), before, "{statement}");
    }
    assert_eq!(scene.session.number("SELECT count(*) FROM t"), 100);
}

#[test]
fn a_statement_that_cannot_be_recorded_goes_on_with_a_warning_where_that_is_wanted() {
    let mut scene = Scene::new(T);
    scene.session.exec("SET stillpoint.enabled = off");
    scene.session.exec(BREAK);
    scene.session.exec("RESET stillpoint.enabled; SET stillpoint.on_record_failure = warning");
    scene.cluster.allow_log("WARNING:  ");
    for statement in STATEMENTS {
        let before = std::fs::read_to_string(scene.cluster.log_path()).unwrap_or_default();
        scene.session.exec(statement);
        let after = std::fs::read_to_string(scene.cluster.log_path()).expect("there is a log");
        assert!(after[before.len()..].contains("WARNING:  "), "{statement}");
    }
    assert!(!scene.observer.yes("SELECT to_regclass('t') IS NOT NULL"));
}

#[test]
fn a_failed_record_in_a_savepoint_costs_no_more_than_the_savepoint() {
    let mut scene = Scene::new(T);
    scene.session.exec("SET stillpoint.enabled = off");
    scene.session.exec(BREAK);
    scene.session.exec("RESET stillpoint.enabled");
    scene.session.exec("BEGIN; INSERT INTO t VALUES (1000, 'x'); SAVEPOINT s");
    let _ = scene.refusal("TRUNCATE t");
    scene.session.exec("ROLLBACK TO s; COMMIT");
    assert_eq!(scene.observer.number("SELECT count(*) FROM t"), 101);
}

#[test]
fn the_emergency_exit_is_a_setting() {
    let mut scene = Scene::new(T);
    scene.session.exec("SET stillpoint.enabled = off");
    scene.session.exec(BREAK);
    let mark = Mark::now(&mut scene.observer);
    for statement in STATEMENTS {
        scene.session.exec(statement);
    }
    let rows = format!("SELECT count(*) FROM stillpoint.invalidation WHERE {}", mark.since());
    assert_eq!(scene.observer.number(&rows), 0);
}

#[test]
fn a_ledger_that_somebody_locks_makes_statements_wait_and_lose_nothing() {
    let mut scene = Scene::new(T);
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; LOCK TABLE stillpoint.invalidation IN SHARE MODE");
    let watch = scene.watch();
    let waiting = scene.cluster.session(DATABASE).start("TRUNCATE t");
    let waits = crate::waits_behind(waiting.pid(), holder.pid());
    stillpoint_tests::wait_until(&mut scene.observer, &waits);
    holder.exec("COMMIT");
    drop(waiting.finish());
    assert_eq!(watch.told(&mut scene.observer), whole("replaced", "t", "TRUNCATE TABLE"));
}

#[test]
fn a_cancelled_wait_for_the_ledger_is_a_cancelled_statement_whatever_the_setting() {
    let mut scene = Scene::new(T);
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; LOCK TABLE stillpoint.invalidation");
    let before = file(&mut scene);
    scene.cluster.allow_log("canceling statement");
    for setting in ["error", "warning"] {
        let mut session = scene.cluster.session(DATABASE);
        session.exec(&format!("SET stillpoint.on_record_failure = {setting}"));
        let waiting = session.start("TRUNCATE t");
        let waits = crate::waits_behind(waiting.pid(), holder.pid());
        stillpoint_tests::wait_until(&mut scene.observer, &waits);
        assert!(scene.observer.yes(&format!("SELECT pg_cancel_backend({})", waiting.pid())));
        let (_, result) = waiting.result();
        let error = result.expect_err("it was cancelled");
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED), "{setting}");
        assert_eq!(file(&mut scene), before, "{setting}");
    }
}

#[test]
fn a_ledger_that_would_not_survive_a_crash_is_not_recorded_into() {
    let mut scene = Scene::new(T);
    let unlogged = "ALTER TABLE stillpoint.invalidation SET UNLOGGED";
    let error = scene.refusal(unlogged);
    assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error}");
    scene.session.exec(&format!("SET stillpoint.enabled = off; {unlogged}"));
    scene.session.exec("RESET stillpoint.enabled");
    for statement in STATEMENTS {
        let error = scene.refusal(statement);
        assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{statement}");
    }
    scene.session.exec(
        "SET stillpoint.enabled = off;
         ALTER TABLE stillpoint.invalidation SET LOGGED;
         SET stillpoint.enabled = on",
    );
    assert_eq!(scene.told(&["TRUNCATE t"]), whole("replaced", "t", "TRUNCATE TABLE"));
}

/// What makes the ledger unwritable and leaves its rows where they are, and what mends it: found
/// when the ledger is opened, and found when the second row of a transaction is written.
const BREAKS: [(&str, &str); 2] = [
    (
        "ALTER TABLE stillpoint.invalidation ADD COLUMN broken int",
        "ALTER TABLE stillpoint.invalidation DROP COLUMN broken",
    ),
    (
        "CREATE UNIQUE INDEX broken ON stillpoint.invalidation (finished_xid)",
        "DROP INDEX stillpoint.broken",
    ),
];

/// Runs a statement that is not recorded.
#[track_caller]
fn unrecorded(scene: &mut Scene, statement: &str) {
    scene.session.exec("SET stillpoint.enabled = off");
    scene.session.exec(statement);
    scene.session.exec("RESET stillpoint.enabled");
}

const THREE: &str = "CREATE TABLE a (id int); CREATE TABLE b (id int); CREATE TABLE c (id int);
                     CREATE INDEX b_1 ON b (id); CREATE INDEX b_2 ON b (id)";

/// A statement that is to go on with a warning, held at a table while the ledger breaks.
#[track_caller]
fn broken_at(scene: &mut Scene, statement: &str, table: &str, by: &str) -> Held {
    let mut session = scene.cluster.session(DATABASE);
    session.exec("SET stillpoint.on_record_failure = warning");
    let held = hold_in(scene, session, statement, table);
    unrecorded(scene, by);
    scene.cluster.allow_log("could not record what this transaction replaces");
    held
}

#[test]
fn a_ledger_that_breaks_in_the_middle_of_work_costs_records_and_leaves_no_lock() {
    for (breaks, mends) in BREAKS {
        for statement in ["VACUUM FULL a, b", "VACUUM a, b", "REINDEX TABLE CONCURRENTLY b"] {
            let mut scene = Scene::new(THREE);
            let session = broken_at(&mut scene, statement, "b", breaks).let_go();
            // Nothing of the interval stays with a session that lives on.
            let locks = format!(
                "SELECT count(*) FROM pg_locks WHERE pid = {} AND locktype = 'object'",
                session.pid()
            );
            assert_eq!(scene.observer.number(&locks), 0, "{statement}, {breaks}");
            unrecorded(&mut scene, mends);
            assert!(!scene.open().is_empty(), "{statement}, {breaks}");
            scene.session.exec("VACUUM c");
            assert_eq!(scene.open(), [""; 0], "{statement}, {breaks}");
        }
    }
}

#[test]
fn a_ledger_that_is_mended_before_the_work_ends_has_no_open_row_of_it() {
    for (breaks, mends) in BREAKS {
        let mut scene = Scene::new(THREE);
        let held = broken_at(&mut scene, "VACUUM FULL a, b, c", "b", breaks);
        let held = held.go_on_to(&mut scene, "c");
        unrecorded(&mut scene, mends);
        let mut session = held.let_go();
        assert_eq!(scene.open(), [""; 0], "{breaks}");
        let told = scene.observer.texts(
            "SELECT concat_ws(' ', effect, relation_name) FROM stillpoint.invalidation
              WHERE relation_name IN ('a', 'b', 'c') ORDER BY relation_name",
        );
        // The middle one was replaced and could not be recorded, which the session was told.
        assert_eq!(told, ["replaced a", "announced b", "replaced c"], "{breaks}");
        session.exec("VACUUM a");
        assert_eq!(scene.open(), [""; 0], "{breaks}");
    }
}
