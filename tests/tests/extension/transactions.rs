//! Calls in subtransactions, calls that fail halfway, and what they leave behind: nothing. A
//! leaked snapshot or connection is a WARNING in the server's log, which fails the test.

use postgres::error::SqlState;
use stillpoint_tests::{Session, wait_until};

use crate::{DATABASE, Race, begin, changes};

/// Blocks every call halfway: both snapshots are registered, SPI is connected.
const BLOCK: &str = "BEGIN; LOCK TABLE pg_catalog.pg_inherits IN ACCESS EXCLUSIVE MODE";

/// The session can be used on, in the same transaction, and is told the truth.
#[track_caller]
fn assert_works(session: &mut Session, table: u32) {
    let changes = changes(session, &[table]);
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].reasons, "replaced");
}

#[test]
fn a_call_in_a_subtransaction_answers_the_same() {
    let mut race = Race::begin("CREATE TABLE t ()");
    let table = race.oid("t");
    race.commit(&["TRUNCATE t"]);
    race.lock("t");
    race.dump.exec("SAVEPOINT a");
    assert_works(&mut race.dump, table);
    race.dump.exec("SAVEPOINT b");
    assert_works(&mut race.dump, table);
    race.dump.exec("ROLLBACK TO SAVEPOINT b");
    assert_works(&mut race.dump, table);
    race.dump.exec("RELEASE SAVEPOINT a");
    assert_works(&mut race.dump, table);
    race.dump.exec("COMMIT");
    race.cluster.check_log();
}

#[test]
fn a_refused_call_in_a_subtransaction_leaves_nothing_behind() {
    let mut race = Race::begin("CREATE TABLE t (); CREATE TABLE u ()");
    let (table, unlocked) = (race.oid("t"), race.oid("u"));
    race.commit(&["TRUNCATE t"]);
    race.lock("t");
    race.dump.exec(&format!(
        "DO $$
         BEGIN
             FOR i IN 1..50 LOOP
                 BEGIN
                     PERFORM stillpoint.changed_relations('{{{unlocked}}}');
                     RAISE 'not refused';
                 EXCEPTION WHEN object_not_in_prerequisite_state THEN
                     NULL;
                 END;
             END LOOP;
         END $$"
    ));
    assert_works(&mut race.dump, table);
    race.dump.exec("COMMIT");
    race.cluster.check_log();
}

#[test]
fn a_server_error_in_the_middle_of_a_call_leaves_nothing_behind() {
    let mut race = Race::begin("CREATE TABLE t ()");
    let table = race.oid("t");
    race.commit(&["TRUNCATE t"]);
    race.lock("t");
    let mut blocker = race.cluster.session(DATABASE);
    blocker.exec(BLOCK);
    race.dump.exec(&format!(
        "SET lock_timeout = 1;
         DO $$
         BEGIN
             FOR i IN 1..20 LOOP
                 BEGIN
                     PERFORM stillpoint.changed_relations('{{{table}}}');
                     RAISE 'not stopped';
                 EXCEPTION WHEN lock_not_available THEN
                     NULL;
                 END;
             END LOOP;
         END $$"
    ));
    blocker.exec("ROLLBACK");
    assert_works(&mut race.dump, table);
    race.dump.exec("COMMIT");
    race.cluster.check_log();
}

#[test]
fn a_cancelled_call_ends_with_the_servers_error_and_leaves_nothing_behind() {
    let mut race = Race::begin("CREATE TABLE t ()");
    let table = race.oid("t");
    race.commit(&["TRUNCATE t"]);
    race.lock("t");
    race.dump.exec("SAVEPOINT s");
    let mut blocker = race.cluster.session(DATABASE);
    blocker.exec(BLOCK);
    let Race { dump, other, cluster } = race;
    let call = dump.start(&format!("SELECT stillpoint.changed_relations('{{{table}}}')"));
    let mut observer = other;
    wait_until(
        &mut observer,
        &format!(
            "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {}",
            call.pid()
        ),
    );
    cluster.allow_log("canceling statement due to user request");
    assert!(observer.yes(&format!("SELECT pg_cancel_backend({})", call.pid())));
    let (mut dump, result) = call.result();
    let error = result.expect_err("the call was cancelled");
    assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
    blocker.exec("ROLLBACK");
    dump.exec("ROLLBACK TO SAVEPOINT s");
    assert_works(&mut dump, table);
    dump.exec("COMMIT");
    cluster.check_log();
}

#[test]
fn an_imported_snapshot_is_the_transactions_snapshot() {
    let mut race = Race::begin("CREATE TABLE t ()");
    let table = race.oid("t");
    let snapshot = race.dump.text("SELECT pg_export_snapshot()");
    race.commit(&["TRUNCATE t"]);
    let mut worker = race.cluster.session(DATABASE);
    worker.exec("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
    worker.exec(&format!("SET TRANSACTION SNAPSHOT '{snapshot}'"));
    worker.exec("LOCK TABLE t IN ACCESS SHARE MODE");
    assert_works(&mut worker, table);
    let mut late = race.cluster.session(DATABASE);
    begin(&mut late);
    late.exec("LOCK TABLE t IN ACCESS SHARE MODE");
    assert_eq!(changes(&mut late, &[table]), []);
}

#[test]
fn a_call_in_a_cursor_and_in_a_select_list_answers_the_same() {
    let mut race = Race::begin("CREATE TABLE a (); CREATE TABLE b ()");
    race.commit(&["TRUNCATE a, b"]);
    race.lock("a");
    race.lock("b");
    let relations = format!("'{{{}, {}}}'", race.oid("a"), race.oid("b"));
    let listed = race
        .dump
        .texts(&format!("SELECT (stillpoint.changed_relations({relations})).relation_name"));
    assert_eq!(listed, ["a", "b"]);
    race.dump.exec(&format!(
        "DECLARE c SCROLL CURSOR FOR
             SELECT relation_name FROM stillpoint.changed_relations({relations})"
    ));
    assert_eq!(race.dump.texts("FETCH ALL FROM c"), ["a", "b"]);
    assert_eq!(race.dump.texts("FETCH BACKWARD ALL FROM c"), ["b", "a"]);
    let limited = race.dump.texts(&format!(
        "SELECT relation_name FROM stillpoint.changed_relations({relations}) LIMIT 1"
    ));
    assert_eq!(limited, ["a"]);
    race.dump.exec("COMMIT");
    race.cluster.check_log();
}
