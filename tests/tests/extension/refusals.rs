//! Each error, by SQLSTATE, with a hint that says what to do.

use postgres::error::SqlState;

use crate::{Race, begin};

const CHECK_T: &str = "SELECT * FROM stillpoint.changed_relations(ARRAY['t'::regclass::oid])";

#[test]
fn a_relation_that_is_not_locked_is_refused_with_the_statement_that_locks_it() {
    let mut race = Race::begin("CREATE TABLE t (); CREATE TABLE u ()");
    let error = race.refusal(CHECK_T);
    assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert_eq!(error.message(), "relation \"public.t\" is not locked by this transaction");
    let hint = error.hint().expect("there is a hint");
    let lock = hint.strip_prefix("Run ").and_then(|rest| rest.strip_suffix(" first."));
    race.dump.exec("ROLLBACK");
    begin(&mut race.dump);
    race.dump.exec(lock.expect("the hint holds a statement"));
    race.dump.exec(CHECK_T);
}

#[test]
fn a_relation_that_cannot_be_locked_by_name_is_locked_as_the_hint_says() {
    let mut race = Race::begin("CREATE MATERIALIZED VIEW m AS SELECT 1; CREATE SEQUENCE s");
    for relation in ["m", "s"] {
        let check = format!("SELECT stillpoint.changed_relations('{{{}}}')", race.oid(relation));
        let error = race.refusal(&check);
        let hint = error.hint().expect("there is a hint").to_owned();
        let (statement, _) = hint.split_once(" first").expect("the hint holds a statement");
        race.dump.exec("ROLLBACK");
        begin(&mut race.dump);
        race.dump.exec(statement.strip_prefix("Run ").expect("the hint says to run it"));
        race.dump.exec(&check);
    }
}

#[test]
fn a_truncated_relation_that_is_not_locked_is_refused_too() {
    let mut race = Race::begin("CREATE TABLE t ()");
    race.commit(&["TRUNCATE t"]);
    let error = race.refusal(CHECK_T);
    assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
}

#[test]
fn a_refusal_counts_the_relations_that_are_not_locked() {
    let mut race = Race::begin("CREATE TABLE t (); CREATE TABLE u (); CREATE TABLE v ()");
    race.lock("u");
    let error = race.refusal(
        "SELECT stillpoint.changed_relations(
                    ARRAY['t'::regclass::oid, 'u'::regclass, 'v'::regclass])",
    );
    let detail = error.detail().expect("there is a detail");
    assert!(detail.contains("one of 2"), "{detail}");
}

#[test]
fn a_lock_that_a_savepoint_took_is_gone_after_rolling_back_to_it() {
    let mut race = Race::begin("CREATE TABLE t ()");
    race.dump.exec("SAVEPOINT s");
    race.lock("t");
    race.dump.exec(CHECK_T);
    race.dump.exec("ROLLBACK TO SAVEPOINT s");
    let error = race.refusal(CHECK_T);
    assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
}

#[test]
fn every_lock_mode_is_lock_enough() {
    let mut race = Race::begin("CREATE TABLE t ()");
    race.dump.exec("ROLLBACK");
    for mode in [
        "ACCESS SHARE",
        "ROW SHARE",
        "ROW EXCLUSIVE",
        "SHARE UPDATE EXCLUSIVE",
        "SHARE",
        "SHARE ROW EXCLUSIVE",
        "EXCLUSIVE",
        "ACCESS EXCLUSIVE",
    ] {
        begin(&mut race.dump);
        race.dump.exec(&format!("LOCK TABLE t IN {mode} MODE"));
        race.dump.exec(CHECK_T);
        race.dump.exec("ROLLBACK");
    }
}

#[test]
fn a_transaction_without_a_lasting_snapshot_is_refused() {
    let mut race = Race::begin("CREATE TABLE t ()");
    race.dump.exec("ROLLBACK; BEGIN ISOLATION LEVEL READ COMMITTED; LOCK TABLE t");
    let error = race.refusal(CHECK_T);
    assert_eq!(error.code(), &SqlState::INVALID_TRANSACTION_STATE);
    assert!(error.hint().is_some_and(|hint| hint.contains("REPEATABLE READ")), "{error:?}");
    race.dump.exec("ROLLBACK; BEGIN ISOLATION LEVEL SERIALIZABLE; LOCK TABLE t");
    race.dump.exec(CHECK_T);
}

#[test]
fn an_oid_that_is_no_relation_under_the_snapshot_is_refused() {
    let mut race = Race::begin("CREATE TABLE t ()");
    race.commit(&["CREATE TABLE late ()"]);
    race.lock("late");
    let late = race.other.number("SELECT 'late'::regclass::oid");
    let error = race.refusal(&format!("SELECT stillpoint.changed_relations('{{{late}}}')"));
    assert_eq!(error.code(), &SqlState::UNDEFINED_TABLE);
    assert!(error.message().contains(&late.to_string()), "{error:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("pg_class")), "{error:?}");
}

#[test]
fn nulls_are_refused() {
    let mut race = Race::begin("CREATE TABLE t ()");
    for argument in ["NULL", "'{NULL}'", "ARRAY['t'::regclass::oid, NULL]"] {
        let sql = format!("SELECT * FROM stillpoint.changed_relations({argument})");
        race.lock("t");
        let error = race.refusal(&sql);
        assert_eq!(error.code(), &SqlState::NULL_VALUE_NOT_ALLOWED, "{argument}");
        race.dump.exec("ROLLBACK");
        begin(&mut race.dump);
    }
}

#[test]
fn no_relations_are_no_changes() {
    let mut race = Race::begin("");
    assert_eq!(race.changes(&[]), []);
}
