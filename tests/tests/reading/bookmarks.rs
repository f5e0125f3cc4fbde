//! A bookmark against everything that can commit in another order than it was begun.

use postgres::error::SqlState;
use stillpoint_tests::{ClusterOptions, wait_until};

use crate::{DATABASE, Scene, literal, waits_behind};

#[test]
fn a_bookmark_tells_what_committed_before_from_what_committed_after() {
    let mut scene = Scene::new();
    scene.session.exec("TRUNCATE a");
    let bookmark = scene.bookmark();
    assert!(scene.void_since(&bookmark).is_empty());
    scene.session.exec("TRUNCATE b");
    assert_eq!(scene.void_since(&bookmark), ["b"]);
}

#[test]
fn the_old_file_and_the_new_one_are_named_with_what_has_happened() {
    let mut scene = Scene::new();
    let old = scene.path("a");
    let bookmark = scene.bookmark();
    scene.session.exec("TRUNCATE a");
    scene.session.exec("VACUUM FULL a");
    let new = scene.path("a");
    let rows = scene.observer.texts(&format!(
        "SELECT concat_ws(' ', path = '{old}', effects, commands, first_at < last_at,
                          filenode = split_part(path, '/', 3)::oid, tablespace = 1663,
                          relation = 'a'::regclass, relation_name)
           FROM stillpoint.invalidated_since({}) WHERE path IN ('{old}', '{new}')
          ORDER BY filenode",
        literal(&bookmark)
    ));
    assert_eq!(
        rows,
        ["t {replaced} {\"TRUNCATE TABLE\"} f t t t a", "f {replaced} {VACUUM} f t t t a",]
    );
}

#[test]
fn a_transaction_in_flight_at_the_bookmark_is_told_after_its_commit() {
    let mut scene = Scene::new();
    scene.session.exec("BEGIN; TRUNCATE a");
    let first = scene.bookmark();
    assert!(scene.void_since(&first).is_empty());
    let mut other = scene.cluster.session(DATABASE);
    other.exec("TRUNCATE b");
    let second = scene.bookmark();
    scene.session.exec("COMMIT");
    assert_eq!(scene.void_since(&first), ["a", "b"]);
    assert_eq!(scene.void_since(&second), ["a"]);
    assert_eq!(scene.void_between(&first, &second), ["b"]);
}

#[test]
fn a_transaction_that_is_rolled_back_is_not_told() {
    let mut scene = Scene::new();
    scene.session.exec("BEGIN; TRUNCATE a; SAVEPOINT s; TRUNCATE b");
    let bookmark = scene.bookmark();
    scene.session.exec("ROLLBACK TO s; TRUNCATE c; COMMIT");
    assert_eq!(scene.void_since(&bookmark), ["a", "c"]);
    scene.session.exec("BEGIN; TRUNCATE b; ROLLBACK");
    assert_eq!(scene.void_since(&bookmark), ["a", "c"]);
}

#[test]
fn what_a_subtransaction_has_done_is_told_with_its_transaction() {
    let mut scene = Scene::new();
    scene.session.exec("BEGIN; SAVEPOINT s; TRUNCATE a; RELEASE s; SAVEPOINT s; TRUNCATE b");
    let bookmark = scene.bookmark();
    scene.session.exec("COMMIT");
    assert_eq!(scene.void_since(&bookmark), ["a", "b"]);
}

#[test]
fn a_prepared_transaction_is_told_when_it_is_committed_however_late() {
    let mut scene = Scene::with(ClusterOptions::default().setting("max_prepared_transactions = 2"));
    scene.session.exec("BEGIN; TRUNCATE a; PREPARE TRANSACTION 'p'");
    let bookmark = scene.bookmark();
    scene.session.exec("TRUNCATE b");
    assert_eq!(scene.void_since(&bookmark), ["b"]);
    scene.cluster.restart();
    scene.observer = scene.cluster.session(DATABASE);
    scene.session = scene.cluster.session(DATABASE);
    let later = scene.bookmark();
    scene.session.exec("COMMIT PREPARED 'p'");
    assert_eq!(scene.void_since(&bookmark), ["a", "b"]);
    assert_eq!(scene.void_since(&later), ["a"]);
}

#[test]
fn a_vacuum_that_runs_across_bookmarks_is_told_for_each_of_them() {
    let mut scene = Scene::new();
    let before = scene.bookmark();
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; LOCK TABLE a IN SHARE UPDATE EXCLUSIVE MODE");
    let running = scene.cluster.session(DATABASE).start("VACUUM a");
    wait_until(&mut scene.observer, &waits_behind(running.pid(), holder.pid()));
    let within = scene.bookmark();
    for bookmark in [&before, &within] {
        assert_eq!(scene.void_since(bookmark), ["a"]);
    }
    assert_eq!(scene.void_between(&before, &within), ["a"]);
    holder.exec("COMMIT");
    let _ = running.finish();
    let after = scene.bookmark();
    for bookmark in [&before, &within] {
        assert_eq!(scene.void_since(bookmark), ["a"]);
        assert_eq!(scene.void_between(bookmark, &after), ["a"]);
    }
    assert!(scene.void_since(&after).is_empty());
}

#[test]
fn an_open_interval_is_about_whatever_file_the_relation_has() {
    let mut scene = Scene::new();
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; LOCK TABLE a IN ACCESS EXCLUSIVE MODE");
    let running = scene.cluster.session(DATABASE).start("VACUUM a");
    wait_until(&mut scene.observer, &waits_behind(running.pid(), holder.pid()));
    holder.exec("TRUNCATE a; COMMIT; BEGIN; LOCK TABLE b IN ACCESS EXCLUSIVE MODE");
    let _ = running.finish();
    let mut other = scene.cluster.session(DATABASE);
    holder.exec("COMMIT; BEGIN; LOCK TABLE a IN SHARE UPDATE EXCLUSIVE MODE");
    let running = scene.cluster.session(DATABASE).start("VACUUM a");
    wait_until(&mut scene.observer, &waits_behind(running.pid(), holder.pid()));
    // Another file, under the number that the open row does not name.
    let renumbered = "UPDATE pg_class SET relfilenode = relfilenode WHERE relname = 'a'";
    other.exec(renumbered);
    let bookmark = scene.bookmark();
    let path = scene.path("a");
    let named = format!(
        "SELECT count(*) FROM stillpoint.invalidated_since({}) WHERE path = '{path}'",
        literal(&bookmark)
    );
    assert_eq!(scene.observer.number(&named), 1);
    holder.exec("COMMIT");
    let _ = running.finish();
}

#[test]
fn numbers_of_transactions_that_a_crash_hands_out_again_are_not_taken_for_known_ones() {
    let mut scene = Scene::new();
    // Two numbers that leave nothing in the WAL.
    for _ in 0..2 {
        scene.session.exec("BEGIN; SELECT pg_current_xact_id(); ROLLBACK");
    }
    let bookmark = scene.bookmark();
    for _ in 0..20 {
        scene.session.exec("BEGIN; SELECT pg_current_xact_id(); ROLLBACK");
    }
    scene.crash();
    scene.session.exec("TRUNCATE a");
    assert_eq!(scene.void_since(&bookmark), ["a"]);
}

#[test]
fn numbers_that_were_rolled_back_within_the_bookmarks_snapshot_may_be_handed_out_again() {
    let mut scene = Scene::new();
    // The bookmark's transaction has its number, and waits; later ones are over when it goes on, so
    // that its snapshot counts them as known.
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; LOCK TABLE stillpoint.bookmark IN EXCLUSIVE MODE");
    let taking = scene.cluster.session(DATABASE);
    let pid = taking.pid();
    let taking = taking.start(
        "CREATE TEMP TABLE taken AS
         SELECT pg_current_xact_id() AS xid, stillpoint.bookmark() AS bookmark",
    );
    wait_until(&mut scene.observer, &waits_behind(pid, holder.pid()));
    for _ in 0..20 {
        scene.session.exec("BEGIN; SELECT pg_current_xact_id(); ROLLBACK");
    }
    holder.exec("ROLLBACK");
    let bookmark = taking.finish().text("SELECT bookmark FROM taken");
    scene.crash();
    scene.session.exec("TRUNCATE a");
    assert_eq!(scene.void_since(&bookmark), ["a"]);
}

#[test]
fn a_reader_with_an_old_snapshot_is_told_of_the_present() {
    let mut scene = Scene::new();
    let bookmark = scene.bookmark();
    scene.observer.exec("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class LIMIT 1");
    scene.session.exec("TRUNCATE a");
    assert_eq!(scene.void_since(&bookmark), ["a"]);
    scene.observer.exec("COMMIT");
}

#[test]
fn a_bookmark_survives_a_crash_whatever_the_session_says_of_durability() {
    let mut scene = Scene::with(ClusterOptions::default().durable());
    scene.observer.exec("SET synchronous_commit = off");
    let bookmark = scene.bookmark();
    scene.crash();
    assert!(scene.void_since(&bookmark).is_empty());
}

#[test]
fn a_bookmark_wants_to_be_a_statement_of_its_own() {
    let mut scene = Scene::new();
    for statement in [
        "BEGIN; SELECT stillpoint.bookmark()",
        "SELECT 1; SELECT stillpoint.bookmark()",
        "SELECT * FROM stillpoint.bookmark(); SELECT 1",
    ] {
        let error = scene.refusal(statement);
        assert_eq!(error.code(), &SqlState::ACTIVE_SQL_TRANSACTION, "{error}");
        if statement.starts_with("BEGIN") {
            scene.session.exec("ROLLBACK");
        }
    }
    let error = scene.refusal("BEGIN READ ONLY; SELECT stillpoint.bookmark()");
    assert_eq!(error.code(), &SqlState::READ_ONLY_SQL_TRANSACTION, "{error}");
    scene.session.exec("ROLLBACK");
}

#[test]
fn bookmarks_in_the_wrong_order_are_refused() {
    let mut scene = Scene::new();
    let (first, second) = (scene.bookmark(), scene.bookmark());
    let (base, upto) = (literal(&second), literal(&first));
    let error = scene.refusal(&format!("TABLE stillpoint.invalidated_between({base}, {upto})"));
    assert!(error.message().contains("syntax"), "{error}");
    let sql = format!("SELECT * FROM stillpoint.invalidated_between({base}, {upto})");
    let error = scene.refusal(&sql);
    assert_eq!(error.code(), &SqlState::INVALID_PARAMETER_VALUE, "{error}");
}

#[test]
fn bookmarks_are_taken_by_many_at_once() {
    let mut scene = Scene::new();
    let many: Vec<_> = (0..8)
        .map(|_| {
            scene.cluster.session(DATABASE).start(
                "DO $$ BEGIN FOR i IN 1..20 LOOP
                     PERFORM stillpoint.bookmark();
                 END LOOP; END $$",
            )
        })
        .collect();
    for one in many {
        let _ = one.finish();
    }
    let all = "SELECT count(DISTINCT id) FROM stillpoint.bookmark";
    assert_eq!(scene.observer.number(all), 160);
}

#[test]
fn the_view_for_other_tools_names_files_and_positions() {
    let mut scene = Scene::new();
    let file = scene.observer.text("SELECT pg_relation_filenode('a')");
    let before = scene.observer.text("SELECT pg_current_wal_insert_lsn()");
    scene.session.exec("VACUUM a");
    let sql = format!(
        "SELECT concat_ws(' ', count(*), bool_and(vacuum_lsn >= '{before}'))
           FROM stillpoint.possible_vacuum_list WHERE filenode = {file}"
    );
    assert_eq!(scene.observer.text(&sql), "1 t");
}

#[test]
fn a_file_that_a_vacuum_found_in_the_announced_ones_place_is_told_up_to_a_later_bookmark() {
    let mut scene = Scene::new();
    let base = scene.bookmark();
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; LOCK TABLE a IN ACCESS EXCLUSIVE MODE");
    let mut last = scene.cluster.session(DATABASE);
    last.exec("BEGIN; LOCK TABLE c IN SHARE UPDATE EXCLUSIVE MODE");
    let running = scene.cluster.session(DATABASE).start("VACUUM a, c");
    wait_until(&mut scene.observer, &waits_behind(running.pid(), holder.pid()));
    holder.exec("ALTER TABLE a RENAME TO old; ALTER TABLE b RENAME TO a; COMMIT");
    wait_until(&mut scene.observer, &waits_behind(running.pid(), last.pid()));
    let path = scene.path("a");
    let upto = scene.bookmark();
    last.exec("COMMIT");
    let _ = running.finish();
    let named = format!(
        "SELECT count(*) FROM stillpoint.invalidated_between({}, {}) WHERE path = '{path}'",
        literal(&base),
        literal(&upto)
    );
    assert_eq!(scene.observer.number(&named), 1);
}

#[test]
fn an_index_that_is_new_while_its_table_is_worked_on_is_told() {
    let mut scene = Scene::new();
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; LOCK TABLE a IN SHARE UPDATE EXCLUSIVE MODE");
    let running = scene.cluster.session(DATABASE).start("VACUUM a, b");
    wait_until(&mut scene.observer, &waits_behind(running.pid(), holder.pid()));
    scene.session.exec("CREATE INDEX late ON b (id)");
    let path = scene.path("late");
    let bookmark = scene.bookmark();
    let named = format!(
        "SELECT count(*) FROM stillpoint.invalidated_since({}) WHERE path = '{path}'",
        literal(&bookmark)
    );
    assert_eq!(scene.observer.number(&named), 1);
    holder.exec("COMMIT");
    let _ = running.finish();
    assert_eq!(scene.observer.number(&named), 1);
}

#[test]
fn a_ledger_does_not_begin_in_the_midst_of_a_vacuum() {
    let cluster = ClusterOptions::default().preload().start();
    let mut session = cluster.session(DATABASE);
    session.exec(crate::TABLES);
    let mut holder = cluster.session(DATABASE);
    holder.exec("BEGIN; LOCK TABLE a IN SHARE UPDATE EXCLUSIVE MODE");
    let running = cluster.session(DATABASE).start("VACUUM a");
    wait_until(&mut session, &waits_behind(running.pid(), holder.pid()));
    let vacuum = running.pid();
    let creating = cluster.session(DATABASE).start("CREATE EXTENSION stillpoint");
    wait_until(&mut session, &waits_behind(creating.pid(), vacuum));
    holder.exec("COMMIT");
    let _ = running.finish();
    creating.finish().exec("DROP EXTENSION stillpoint");

    // And one that is to begin waits for a ledger that begins.
    session.exec("BEGIN; CREATE EXTENSION stillpoint");
    let waiting = cluster.session(DATABASE).start("VACUUM a");
    wait_until(&mut holder, &waits_behind(waiting.pid(), session.pid()));
    session.exec("COMMIT");
    let _ = waiting.finish();
    let told = "SELECT effect FROM stillpoint.invalidation WHERE relation_name = 'a'";
    assert_eq!(session.text(told), "pages");
}

#[test]
fn a_ledger_that_loses_its_rows_or_is_hidden_for_a_while_has_a_gap() {
    let mut scene = Scene::new();
    for statements in [
        "TRUNCATE stillpoint.invalidation",
        "ALTER TABLE stillpoint.invalidation RENAME TO other; TRUNCATE a; \
         ALTER TABLE stillpoint.other RENAME TO invalidation",
        "ALTER SCHEMA stillpoint RENAME TO other; TRUNCATE a; \
         ALTER SCHEMA other RENAME TO stillpoint",
    ] {
        let bookmark = scene.bookmark();
        for statement in statements.split("; ") {
            scene.session.exec(statement);
        }
        let sql = format!("SELECT * FROM stillpoint.invalidated_since({})", literal(&bookmark));
        let error = scene.refusal(&sql);
        assert_eq!(error.hint(), Some("Take a full backup."), "{statements}: {error:?}");
    }
    for statement in ["VACUUM FULL stillpoint.invalidation", "REINDEX SCHEMA stillpoint"] {
        let bookmark = scene.bookmark();
        scene.session.exec(statement);
        assert!(!scene.void_since(&bookmark).is_empty(), "{statement}");
    }
}
