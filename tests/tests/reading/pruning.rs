//! What `prune()` takes out, and that nobody is told less than he asks for.

use postgres::error::SqlState;

use crate::{Scene, literal};

const ROWS: &str =
    "SELECT count(*) FROM stillpoint.invalidation WHERE relation_name IN ('a', 'b', 'c')";

#[track_caller]
fn back_up(scene: &mut Scene, consumer: &str) {
    let begin = format!("SELECT bookmark FROM stillpoint.begin_backup('{consumer}')");
    let bookmark = scene.session.text(&begin);
    let end = format!("SELECT stillpoint.end_backup('{consumer}', {})", literal(&bookmark));
    scene.session.exec(&end);
}

#[track_caller]
fn age(scene: &mut Scene, table: &str, column: &str) {
    let sql = format!("UPDATE stillpoint.{table} SET {column} = {column} - interval '31 days'");
    scene.session.exec(&sql);
}

#[test]
fn rows_that_every_consumer_has_passed_go() {
    let mut scene = Scene::new();
    for name in ["one", "two"] {
        scene.session.exec(&format!("SELECT stillpoint.register_consumer('{name}')"));
        back_up(&mut scene, name);
    }
    scene.session.exec("TRUNCATE a");
    back_up(&mut scene, "one");
    assert_eq!(scene.session.number("SELECT stillpoint.prune()"), 0);
    assert_eq!(scene.observer.number(ROWS), 1);
    // The last of them takes them out itself.
    back_up(&mut scene, "two");
    assert_eq!(scene.observer.number(ROWS), 0);
}

#[test]
fn a_bookmark_of_no_consumer_keeps_rows_too() {
    let mut scene = Scene::new();
    scene.session.exec("SELECT stillpoint.register_consumer('one')");
    let bookmark = scene.bookmark();
    scene.session.exec("TRUNCATE a");
    back_up(&mut scene, "one");
    scene.session.exec("SELECT stillpoint.prune()");
    assert_eq!(scene.void_since(&bookmark), ["a"]);
}

#[test]
fn a_consumer_that_has_not_ended_its_first_backup_is_no_measure() {
    let mut scene = Scene::new();
    scene.session.exec("SELECT stillpoint.register_consumer('one')");
    scene.session.exec("SELECT stillpoint.register_consumer('two')");
    scene.session.exec("TRUNCATE a");
    back_up(&mut scene, "one");
    assert_eq!(scene.session.number("SELECT stillpoint.prune()"), 0);
}

#[test]
fn the_retention_bounds_the_ledger_and_a_consumer_behind_it_is_lost() {
    let mut scene = Scene::new();
    scene.session.exec("SELECT stillpoint.register_consumer('one')");
    back_up(&mut scene, "one");
    let bookmark = scene.bookmark();
    scene.session.exec("TRUNCATE a");
    age(&mut scene, "invalidation", "recorded_at");
    age(&mut scene, "bookmark", "taken_at");
    assert!(scene.session.number("SELECT stillpoint.prune()") >= 1);
    assert!(scene.observer.yes("SELECT lost AND bookmark IS NULL FROM stillpoint.consumers"));
    let sql = format!("SELECT * FROM stillpoint.invalidated_since({})", literal(&bookmark));
    let error = scene.refusal(&sql);
    assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error}");
    assert_eq!(error.hint(), Some("Take a full backup."));
    let begun = "SELECT concat_ws(' ', base IS NULL, complete, reason ~ 'ledger_retention')
                   FROM stillpoint.begin_backup('one')";
    assert_eq!(scene.session.text(begun), "t f t");
}

#[test]
fn a_clock_that_was_set_back_hides_nothing() {
    let mut scene = Scene::new();
    let before = scene.bookmark();
    let mut other = scene.cluster.session(crate::DATABASE);
    other.exec("BEGIN; TRUNCATE b");
    let within = scene.bookmark();
    other.exec("COMMIT");
    let after = scene.bookmark();
    // The row looks older than all of them.
    age(&mut scene, "invalidation", "recorded_at");
    assert!(scene.session.number("SELECT stillpoint.prune()") >= 1);
    for bookmark in [&before, &within] {
        let sql = format!("SELECT * FROM stillpoint.invalidated_since({})", literal(bookmark));
        let error = scene.refusal(&sql);
        assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error}");
    }
    assert!(scene.void_since(&after).is_empty());
}

#[test]
fn the_end_of_a_backup_takes_out_a_part_at_a_time() {
    let mut scene = Scene::new();
    scene.session.exec("SELECT stillpoint.register_consumer('one')");
    back_up(&mut scene, "one");
    scene.session.exec(
        "INSERT INTO stillpoint.invalidation
             SELECT pg_current_xact_id(), pg_current_xact_id(), '0/1', now(), d.oid, 1663, i, i + 1,
                    i, 'a', 'r', 'TRUNCATE TABLE', 'replaced', false
               FROM generate_series(1, 10500) AS i, pg_database AS d
              WHERE d.datname = current_database()",
    );
    back_up(&mut scene, "one");
    assert_eq!(scene.observer.number(ROWS), 500);
    assert_eq!(scene.session.number("SELECT stillpoint.prune()"), 500);
}
