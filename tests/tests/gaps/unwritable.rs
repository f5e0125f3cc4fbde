//! Statements that go on although their record cannot be written.

use crate::{INTERRUPTED, Scene, since};

/// What makes the ledger unwritable, and what mends it.
const BREAKS: [(&str, &str); 2] = [
    (
        "ALTER TABLE stillpoint.invalidation ADD COLUMN broken int",
        "ALTER TABLE stillpoint.invalidation DROP COLUMN broken",
    ),
    (
        "CREATE UNIQUE INDEX broken ON stillpoint.invalidation ((finished_xid IS NULL))",
        "DROP INDEX stillpoint.broken",
    ),
];

const STATEMENTS: [&str; 6] = [
    "TRUNCATE t",
    "DROP TABLE t",
    "VACUUM t",
    "VACUUM FULL t",
    "REINDEX TABLE CONCURRENTLY t",
    "BEGIN; SAVEPOINT s; TRUNCATE t; RELEASE s; COMMIT",
];

#[test]
fn what_goes_on_with_a_warning_leaves_a_gap() {
    for (breaks, mends) in BREAKS {
        for statement in STATEMENTS {
            let mut scene = Scene::new();
            let base = scene.base();
            scene.session.exec(breaks);
            scene.cluster.allow_log("could not record what this transaction replaces");
            scene.session.exec("SET stillpoint.on_record_failure = warning");
            scene.session.exec(statement);
            scene.session.exec("RESET stillpoint.on_record_failure");
            scene.session.exec(mends);
            scene.assert_gap(&base, INTERRUPTED);
        }
    }
}

#[test]
fn what_is_recorded_where_warnings_are_wanted_leaves_no_gap() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.session.exec("SET stillpoint.on_record_failure = warning");
    for statement in ["TRUNCATE t", "VACUUM FULL t", "REINDEX TABLE CONCURRENTLY t"] {
        scene.session.exec(statement);
    }
    scene.session.exec("RESET stillpoint.on_record_failure");
    scene.assert_whole(&base);
}

#[test]
fn what_fails_for_want_of_a_record_leaves_no_gap() {
    let mut scene = Scene::new();
    let base = scene.base();
    let (breaks, mends) = BREAKS[0];
    scene.session.exec(breaks);
    for statement in ["TRUNCATE t", "DROP TABLE t", "VACUUM t", "VACUUM FULL t"] {
        let _ = scene.refusal(statement);
    }
    scene.session.exec(mends);
    scene.assert_whole(&base);
}

#[test]
fn a_table_that_is_not_to_be_found_is_not_taken_for_an_empty_one() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.session.exec("TRUNCATE t");
    for (breaks, mends) in [
        (
            "ALTER TABLE stillpoint.invalidation RENAME TO elsewhere",
            "ALTER TABLE stillpoint.elsewhere RENAME TO invalidation",
        ),
        (
            "ALTER TABLE stillpoint.bookmark RENAME TO elsewhere",
            "ALTER TABLE stillpoint.elsewhere RENAME TO bookmark",
        ),
        (
            "ALTER TABLE stillpoint.recording RENAME TO elsewhere",
            "ALTER TABLE stillpoint.elsewhere RENAME TO recording",
        ),
    ] {
        scene.session.exec(breaks);
        for sql in [since(&base.bookmark), "SELECT stillpoint.bookmark()".to_owned()] {
            let error = scene.refusal(&sql);
            assert_eq!(error.code().code(), "55000", "{error:?}");
            assert!(error.hint().is_some(), "{error:?}");
        }
        scene.session.exec(mends);
    }
    scene.assert_whole(&base);
}
