//! What is rolled back was not done, and what is released was, in every nesting.

use crate::{Scene, sorted};

const TABLES: &str = "CREATE TABLE a (id int); CREATE TABLE b (id int); CREATE TABLE c (id int)";

/// Runs one transaction for each list of statements, and says which tables are told.
#[track_caller]
fn assert_replaced(transactions: &[(&str, &[&str])]) {
    let mut scene = Scene::new(TABLES);
    for (transaction, tables) in transactions {
        let told = scene.told(&["BEGIN", transaction, "COMMIT"]);
        let expected = tables.iter().map(|table| format!("replaced {table} by TRUNCATE TABLE"));
        assert_eq!(told, sorted(expected), "{transaction}");
    }
}

#[test]
fn a_savepoint_that_is_rolled_back_takes_its_rows_with_it() {
    assert_replaced(&[
        ("SAVEPOINT s; TRUNCATE a; ROLLBACK TO s", &[]),
        ("TRUNCATE a; SAVEPOINT s; TRUNCATE b; ROLLBACK TO s", &["a"]),
        ("SAVEPOINT s; TRUNCATE a; ROLLBACK TO s; TRUNCATE b", &["b"]),
        ("SAVEPOINT s; TRUNCATE a; ROLLBACK TO s; TRUNCATE a", &["a"]),
        ("TRUNCATE a; SAVEPOINT s; TRUNCATE a; ROLLBACK TO s", &["a"]),
    ]);
}

#[test]
fn a_savepoint_that_is_released_leaves_its_rows() {
    assert_replaced(&[
        ("SAVEPOINT s; TRUNCATE a; RELEASE s", &["a"]),
        ("TRUNCATE a; SAVEPOINT s; TRUNCATE a; RELEASE s", &["a"]),
        ("SAVEPOINT s; TRUNCATE a", &["a"]),
        ("SAVEPOINT s; SAVEPOINT t; TRUNCATE a; RELEASE s", &["a"]),
    ]);
}

#[test]
fn what_is_inside_goes_the_way_of_what_is_around_it() {
    assert_replaced(&[
        ("SAVEPOINT s; TRUNCATE a; SAVEPOINT t; TRUNCATE b; RELEASE t; ROLLBACK TO s", &[]),
        ("SAVEPOINT s; TRUNCATE a; SAVEPOINT t; TRUNCATE b; ROLLBACK TO t; RELEASE s", &["a"]),
        ("SAVEPOINT s; SAVEPOINT t; TRUNCATE a; RELEASE t; TRUNCATE b; RELEASE s", &["a", "b"]),
        (
            "SAVEPOINT s; TRUNCATE a; SAVEPOINT t; TRUNCATE b; SAVEPOINT u; TRUNCATE c; \
             ROLLBACK TO t; TRUNCATE c",
            &["a", "c"],
        ),
        (
            "TRUNCATE a; SAVEPOINT s; TRUNCATE a; SAVEPOINT t; TRUNCATE a; ROLLBACK TO t; RELEASE s",
            &["a"],
        ),
        ("SAVEPOINT s; TRUNCATE a; ROLLBACK TO s; SAVEPOINT s; TRUNCATE a; RELEASE s", &["a"]),
    ]);
}

#[test]
fn a_drop_that_is_rolled_back_is_none() {
    let mut scene = Scene::new(TABLES);
    let told = scene.told(&["BEGIN; SAVEPOINT s; DROP TABLE a; ROLLBACK TO s; TRUNCATE a; COMMIT"]);
    assert_eq!(told, ["replaced a by TRUNCATE TABLE"]);
    let told = scene.told(&["BEGIN; TRUNCATE a; SAVEPOINT s; DROP TABLE a; RELEASE s; COMMIT"]);
    assert_eq!(told, ["dropped a by TRUNCATE TABLE"]);
}

#[test]
fn a_subtransaction_of_an_error_leaves_no_row() {
    let mut scene = Scene::new(TABLES);
    scene.cluster.allow_log("division by zero");
    scene.session.exec("BEGIN; SAVEPOINT s");
    let watch = scene.watch();
    assert!(scene.session.try_exec("TRUNCATE a; SELECT 1 / 0").is_err());
    scene.session.exec("ROLLBACK TO s; TRUNCATE b; COMMIT");
    assert_eq!(watch.told(&mut scene.observer), ["replaced b by TRUNCATE TABLE"]);
}

#[test]
fn very_many_savepoints_are_no_harder_than_one() {
    let mut scene = Scene::new(TABLES);
    let told = scene.told(&["DO $$ BEGIN
             FOR i IN 1..300 LOOP
                 BEGIN
                     TRUNCATE a;
                     IF i % 2 = 0 THEN RAISE division_by_zero; END IF;
                 EXCEPTION WHEN division_by_zero THEN NULL;
                 END;
             END LOOP;
         END $$"]);
    assert_eq!(told, ["replaced a by TRUNCATE TABLE"]);
}
