//! What others do to the tables of an interval, and to its rows, while it is open.

use stillpoint_tests::wait_until;

use crate::held::hold;
use crate::{DATABASE, Scene, waits_behind};

const TABLES: &str = "CREATE TABLE a (id int); INSERT INTO a VALUES (1);
                      CREATE TABLE b (id int); INSERT INTO b VALUES (1);
                      CREATE TABLE c (id int)";

#[track_caller]
fn file(scene: &mut Scene, table: &str) -> String {
    scene.observer.text(&format!("SELECT pg_relation_filenode('{table}')"))
}

/// Effect, and whether the end is recorded, of all rows about a file.
#[track_caller]
fn told_of(scene: &mut Scene, file: &str) -> Vec<String> {
    scene.observer.texts(&format!(
        "SELECT concat_ws(' ', effect, CASE WHEN finished_xid IS NULL THEN 'open' END)
           FROM stillpoint.invalidation WHERE filenode = {file} ORDER BY 1"
    ))
}

#[test]
fn a_file_that_a_cut_off_vacuum_may_have_found_in_the_announced_ones_place_is_named_too() {
    let mut scene = Scene::new(TABLES);
    let announced = file(&mut scene, "b");
    let held = hold(&mut scene, "VACUUM a, b, c", "a");
    scene.session.exec("TRUNCATE b; INSERT INTO b VALUES (1); DELETE FROM b");
    let found = file(&mut scene, "b");
    let held = held.go_on_to(&mut scene, "c");
    held.end_by(&mut scene, "pg_cancel_backend", "canceling statement due to user request");
    assert_eq!(told_of(&mut scene, &found), [""; 0]);
    scene.session.exec("VACUUM c");
    assert_eq!(told_of(&mut scene, &found), ["announced"]);
    assert_eq!(told_of(&mut scene, &announced), ["announced", "replaced"]);
    assert_eq!(scene.open(), [""; 0]);
}

#[test]
fn a_file_that_a_vacuum_has_found_in_the_announced_ones_place_is_told_when_it_ends() {
    let mut scene = Scene::new(TABLES);
    let held = hold(&mut scene, "VACUUM a, b", "a");
    scene.session.exec("TRUNCATE b; INSERT INTO b VALUES (1); DELETE FROM b");
    drop(held.let_go());
    let found = file(&mut scene, "b");
    assert_eq!(told_of(&mut scene, &found), ["pages"]);
    assert_eq!(scene.open(), [""; 0]);
}

#[test]
fn a_table_that_gets_the_name_of_a_vacuums_table_while_that_waits_is_told() {
    let mut scene = Scene::new(TABLES);
    let (old, new) = (file(&mut scene, "a"), file(&mut scene, "b"));
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; LOCK TABLE a");
    let running = scene.cluster.session(DATABASE).start("VACUUM a");
    wait_until(&mut scene.observer, &waits_behind(running.pid(), holder.pid()));
    assert_eq!(told_of(&mut scene, &old), ["announced open"]);
    // As a table is exchanged for one that was loaded beside it.
    holder.exec("ALTER TABLE a RENAME TO a_old; ALTER TABLE b RENAME TO a; COMMIT");
    drop(running.finish());
    assert_eq!(file(&mut scene, "a"), new);
    assert_eq!(told_of(&mut scene, &new), ["pages"]);
    assert_eq!(scene.open(), [""; 0]);
}

#[test]
fn a_table_that_gets_the_name_of_a_rebuilt_one_while_that_waits_is_told() {
    let mut scene = Scene::new(TABLES);
    let new = file(&mut scene, "b");
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; LOCK TABLE a");
    let running = scene.cluster.session(DATABASE).start("VACUUM FULL a");
    wait_until(&mut scene.observer, &waits_behind(running.pid(), holder.pid()));
    holder.exec("ALTER TABLE a RENAME TO a_old; ALTER TABLE b RENAME TO a; COMMIT");
    drop(running.finish());
    assert_ne!(file(&mut scene, "a"), new);
    assert_eq!(told_of(&mut scene, &new), ["replaced"]);
    assert_eq!(scene.open(), [""; 0]);
}

#[test]
fn a_vacuum_whose_rows_somebody_deletes_meanwhile_ends_well() {
    let mut scene = Scene::new(TABLES);
    for statement in ["VACUUM FULL a, b", "VACUUM a, b", "REINDEX TABLE CONCURRENTLY b"] {
        let held = hold(&mut scene, statement, "b");
        scene.session.exec("DELETE FROM stillpoint.invalidation");
        drop(held.let_go());
        assert_eq!(scene.open(), [""; 0], "{statement}");
    }
}

#[test]
fn a_vacuum_whose_rows_somebody_is_deleting_waits_for_that_and_ends_well() {
    let mut scene = Scene::new(TABLES);
    for (statement, effect) in [("VACUUM FULL a, b", "replaced"), ("VACUUM a, b", "pages")] {
        let before = file(&mut scene, "b");
        let held = hold(&mut scene, statement, "b");
        scene.session.exec("BEGIN; DELETE FROM stillpoint.invalidation");
        let running = held.release();
        let waits = waits_behind(running.pid(), scene.session.pid());
        wait_until(&mut scene.observer, &waits);
        scene.session.exec("COMMIT");
        drop(running.finish());
        assert_eq!(told_of(&mut scene, &before), [effect], "{statement}");
        assert_eq!(scene.open(), [""; 0], "{statement}");
    }
}

#[test]
fn a_row_that_has_come_to_the_place_of_a_deleted_one_stays() {
    let mut scene = Scene::new(TABLES);
    let victim = file(&mut scene, "c");
    // Without a snapshot of its own, so that the place can be had again.
    let held = hold(&mut scene, "VACUUM b", "b");
    scene.session.exec("DELETE FROM stillpoint.invalidation");
    scene.session.exec("SET stillpoint.enabled = off");
    scene.session.exec("VACUUM stillpoint.invalidation");
    scene.session.exec("RESET stillpoint.enabled");
    scene.session.exec("DROP TABLE c");
    drop(held.let_go());
    assert_eq!(told_of(&mut scene, &victim), ["dropped"]);
}
