//! Work outside a transaction lasts: it is recorded as begun before, as ended after, and never
//! taken for done in between.

use stillpoint_tests::{psql, wait_until};

use crate::held::hold;
use crate::{DATABASE, Scene, T, waits_behind, whole};

const TWO: &str = "CREATE TABLE a (id int); INSERT INTO a VALUES (1);
                   CREATE TABLE b (id int); INSERT INTO b VALUES (1);
                   CREATE TABLE c (id int)";

/// Effect, and whether the end is recorded and by whom, of all rows about a table.
#[track_caller]
fn state(scene: &mut Scene, table: &str) -> Vec<String> {
    scene.observer.texts(&format!(
        "SELECT concat_ws(' ', effect, CASE WHEN finished_xid IS NULL THEN 'open'
                                            WHEN finished_xid = xid THEN 'at once'
                                            ELSE 'later' END)
           FROM stillpoint.invalidation WHERE relation_name = '{table}' ORDER BY lsn"
    ))
}

#[test]
fn a_vacuum_is_told_to_everybody_while_it_works_and_ended_when_it_ends() {
    let mut scene = Scene::new(TWO);
    let held = hold(&mut scene, "VACUUM a, b", "b");
    assert_eq!(state(&mut scene, "a"), ["announced open"]);
    assert_eq!(state(&mut scene, "b"), ["announced open"]);
    drop(held.let_go());
    assert_eq!(state(&mut scene, "a"), ["pages later"]);
    assert_eq!(state(&mut scene, "b"), ["pages later"]);
}

#[test]
fn a_vacuum_held_at_a_page_is_told_like_any_other() {
    let mut scene = Scene::new(TWO);
    // An open cursor keeps its page from being cleaned.
    let mut reader = scene.cluster.session(DATABASE);
    reader.exec("BEGIN; DECLARE c CURSOR FOR SELECT * FROM a; FETCH c");
    let running = scene.cluster.session(DATABASE).start("VACUUM (FREEZE) a");
    let waits = format!(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {} AND wait_event = 'BufferPin')",
        running.pid()
    );
    wait_until(&mut scene.observer, &waits);
    assert_eq!(state(&mut scene, "a"), ["announced open"]);
    reader.exec("COMMIT");
    drop(running.finish());
    assert_eq!(state(&mut scene, "a"), ["pages later"]);
}

#[test]
fn a_full_vacuum_ends_each_tables_rows_with_the_table() {
    let mut scene = Scene::new(TWO);
    let held = hold(&mut scene, "VACUUM FULL a, b", "b");
    assert_eq!(state(&mut scene, "a"), ["replaced at once"]);
    assert_eq!(state(&mut scene, "b"), ["announced open"]);
    drop(held.let_go());
    assert_eq!(state(&mut scene, "b"), ["replaced at once"]);
    assert_eq!(scene.open(), [""; 0]);
}

#[test]
fn every_statement_with_transactions_of_its_own_is_open_until_it_ends() {
    let mut scene = Scene::new(
        "CREATE TABLE p (id int) PARTITION BY RANGE (id);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
         CREATE INDEX p_id ON p (id);
         CREATE TABLE k (id int PRIMARY KEY); ALTER TABLE k CLUSTER ON k_pkey",
    );
    let mut statements = vec![
        ("VACUUM p", "p1", "p1"),
        ("VACUUM FULL p", "p1", "p1"),
        ("CLUSTER", "k", "k"),
        ("REINDEX TABLE p", "p1", "p1_id_idx"),
        ("REINDEX INDEX p_id", "p1", "p1_id_idx"),
        ("REINDEX SCHEMA public", "k", "k_pkey"),
        ("REINDEX DATABASE postgres", "k", "k_pkey"),
        ("REINDEX TABLE CONCURRENTLY k", "k", "k_pkey"),
        ("REINDEX INDEX CONCURRENTLY k_pkey", "k", "k_pkey"),
    ];
    if scene.cluster.major_version() >= 15 {
        statements.push(("CLUSTER p USING p_id", "p1", "p1"));
    }
    for (statement, held_at, told) in statements {
        let held = hold(&mut scene, statement, held_at);
        assert!(scene.open().contains(&told.to_owned()), "{statement}");
        drop(held.let_go());
        assert_eq!(scene.open(), [""; 0], "{statement}");
    }
}

#[test]
fn the_interval_of_a_cancelled_vacuum_is_closed_by_the_next_one_and_stays_announced() {
    let mut scene = Scene::new(TWO);
    let held = hold(&mut scene, "VACUUM a, b", "b");
    held.end_by(&mut scene, "pg_cancel_backend", "canceling statement due to user request");
    assert_eq!(state(&mut scene, "a"), ["announced open"]);
    scene.session.exec("VACUUM c");
    assert_eq!(state(&mut scene, "a"), ["announced later"]);
    assert_eq!(state(&mut scene, "b"), ["announced later"]);
}

#[test]
fn an_interval_that_was_cut_off_is_closed_without_an_index_to_find_it_by() {
    let mut scene = Scene::new(TWO);
    scene.cluster.allow_log("despite IgnoreSystemIndexes");
    let cut_off = |scene: &mut Scene| {
        let held = hold(scene, "VACUUM a", "a");
        held.end_by(scene, "pg_cancel_backend", "canceling statement due to user request");
        assert_eq!(scene.open(), ["a"]);
    };
    cut_off(&mut scene);
    let finished = psql(&scene.cluster, DATABASE)
        .env("PGOPTIONS", "-c ignore_system_indexes=on")
        .args(["-c", "VACUUM c"])
        .run();
    finished.assert_exit(0).assert_silent();
    assert_eq!(scene.open(), [""; 0]);

    scene.session.exec("DROP INDEX stillpoint.invalidation_finished_xid_idx");
    cut_off(&mut scene);
    scene.session.exec("VACUUM c");
    assert_eq!(scene.open(), [""; 0]);

    // One that knows no NULL is no help, and no harm.
    scene.session.exec("CREATE INDEX ON stillpoint.invalidation USING hash (finished_xid)");
    cut_off(&mut scene);
    scene.session.exec("VACUUM c");
    assert_eq!(scene.open(), [""; 0]);
}

#[test]
fn the_interval_of_a_killed_session_is_closed_by_the_next_one_and_stays_announced() {
    let mut scene = Scene::new(TWO);
    let held = hold(&mut scene, "VACUUM FULL a, b", "b");
    held.end_by(&mut scene, "pg_terminate_backend", "terminating connection");
    assert_eq!(state(&mut scene, "a"), ["replaced at once"]);
    assert_eq!(state(&mut scene, "b"), ["announced open"]);
    scene.session.exec("VACUUM c");
    assert_eq!(state(&mut scene, "b"), ["announced later"]);
}

#[test]
fn the_intervals_of_two_killed_sessions_about_one_table_are_both_closed() {
    let mut scene = Scene::new(TWO);
    let first = hold(&mut scene, "VACUUM b, a", "b");
    let second = hold(&mut scene, "VACUUM c, a", "c");
    for held in [first, second] {
        held.end_by(&mut scene, "pg_terminate_backend", "terminating connection");
    }
    assert_eq!(state(&mut scene, "a"), ["announced open", "announced open"]);
    scene.session.exec("VACUUM b");
    assert_eq!(state(&mut scene, "a"), ["announced later", "announced later"]);
}

#[test]
fn a_statement_in_a_transaction_closes_orphans_or_leaves_them_open_but_never_loses_them() {
    let mut scene = Scene::new(TWO);
    let held = hold(&mut scene, "VACUUM a, b", "b");
    held.end_by(&mut scene, "pg_cancel_backend", "canceling statement due to user request");
    scene.session.exec("BEGIN; TRUNCATE c; ROLLBACK");
    scene.session.exec("TRUNCATE c");
    let state = state(&mut scene, "a");
    assert!(state == ["announced open"] || state == ["announced later"], "{state:?}");
}

#[test]
fn an_interval_whose_session_lives_is_closed_by_nobody_else() {
    let mut scene = Scene::new(TWO);
    let held = hold(&mut scene, "VACUUM a", "a");
    scene.session.exec("VACUUM b");
    scene.session.exec("VACUUM FULL c");
    assert_eq!(state(&mut scene, "a"), ["announced open"]);
    assert_eq!(state(&mut scene, "b"), ["pages later"]);
    drop(held.let_go());
    assert_eq!(state(&mut scene, "a"), ["pages later"]);
}

#[test]
fn a_session_whose_vacuum_has_failed_records_its_next_one() {
    let mut scene = Scene::new(TWO);
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; LOCK TABLE a");
    scene.session.exec("SET lock_timeout = 1");
    scene.cluster.allow_log("canceling statement due to lock timeout");
    assert!(scene.session.try_exec("VACUUM a").is_err());
    scene.session.exec("RESET lock_timeout");
    holder.exec("COMMIT");
    assert_eq!(state(&mut scene, "a"), ["announced open"]);
    scene.session.exec("VACUUM a");
    assert_eq!(state(&mut scene, "a"), ["announced later", "pages later"]);
    let told = scene.told(&["TRUNCATE a"]);
    assert_eq!(told, ["replaced a by TRUNCATE TABLE"]);
}

#[test]
fn an_interval_that_a_crash_has_cut_off_is_found_afterwards() {
    let mut scene = Scene::new(TWO);
    let held = hold(&mut scene, "VACUUM FULL a, b", "b");
    scene.cluster.kill_backend(held.running.pid());
    let (_, result) = held.running.result();
    assert!(result.is_err());
    scene.observer = scene.cluster.session(DATABASE);
    scene.session = scene.cluster.session(DATABASE);
    assert_eq!(state(&mut scene, "a"), ["replaced at once"]);
    assert_eq!(state(&mut scene, "b"), ["announced open"]);
    scene.session.exec("VACUUM c");
    assert_eq!(state(&mut scene, "b"), ["announced later"]);
}

#[test]
fn a_vacuum_that_finds_its_table_gone_ends_its_interval() {
    let mut scene = Scene::new(T);
    scene.session.exec(TWO);
    let watch = scene.watch();
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; DROP TABLE a");
    let running = scene.cluster.session(DATABASE).start("VACUUM a, t");
    wait_until(&mut scene.observer, &waits_behind(running.pid(), holder.pid()));
    // The server looks for the names of a list once more.
    scene.cluster.allow_log("relation \"a\" does not exist");
    holder.exec("COMMIT");
    drop(running.result());
    scene.session.exec("VACUUM c");
    assert_eq!(scene.open(), [""; 0]);
    let dropped = "dropped a by DROP TABLE".to_owned();
    assert!(watch.told(&mut scene.observer).contains(&dropped));
}

#[test]
fn a_table_renamed_in_the_middle_keeps_its_interval() {
    let mut scene = Scene::new(TWO);
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; ALTER TABLE b RENAME TO d");
    let running = scene.cluster.session(DATABASE).start("VACUUM a, b");
    wait_until(&mut scene.observer, &waits_behind(running.pid(), holder.pid()));
    holder.exec("COMMIT");
    let (_, result) = running.result();
    scene.cluster.allow_log("relation \"b\" does not exist");
    if result.is_err() {
        scene.session.exec("VACUUM c");
    }
    assert_eq!(scene.open(), [""; 0]);
}

#[test]
fn parallel_workers_and_many_indexes_do_no_harm() {
    let mut scene = Scene::new(
        "SET min_parallel_index_scan_size = 0;
         CREATE TABLE t (id int PRIMARY KEY, word text);
         INSERT INTO t SELECT i, i FROM generate_series(1, 5000) AS i;
         CREATE INDEX t_word ON t (word); CREATE INDEX t_both ON t (id, word);
         DELETE FROM t WHERE id % 2 = 0",
    );
    let told = scene.told(&["VACUUM (PARALLEL 2) t"]);
    let mut expected = whole("pages", "t", "VACUUM");
    expected.extend(["pages t_both by VACUUM".to_owned(), "pages t_word by VACUUM".to_owned()]);
    expected.sort();
    assert_eq!(told, expected);
    let told =
        scene.told(&["SET max_parallel_maintenance_workers = 2", "CREATE INDEX t_w ON t (word)"]);
    assert_eq!(told, [""; 0]);
}
