//! Bookmarks of another ledger: of another cluster, another database, or one that was dropped.

use stillpoint_tests::{ClusterOptions, wait_until};

use crate::{Base, assert_unusable, assert_whole, back_up, between, refusal, since};
use crate::{Scene, TABLES, TOOL};

const OTHER_LEDGER: &str = "the extension has been created anew since the bookmark was taken";

/// What is first told to a consumer that is new to the ledger.
const FIRST: &str = "this is the first backup of this consumer";

#[test]
fn a_ledger_that_was_dropped_and_created_again_does_not_know_the_old_ones_bookmarks() {
    for anew in [
        &["DROP EXTENSION stillpoint", "TRUNCATE t", "CREATE EXTENSION stillpoint"][..],
        &["BEGIN; DROP EXTENSION stillpoint; CREATE EXTENSION stillpoint; COMMIT"][..],
        &[
            "DROP EXTENSION stillpoint",
            "CREATE EXTENSION stillpoint VERSION '0.2.0'",
            "ALTER EXTENSION stillpoint UPDATE",
        ][..],
    ] {
        let mut scene = Scene::new();
        let base = scene.base();
        for statement in anew {
            scene.session.exec(statement);
        }
        assert_unusable(&scene.refusal(&since(&base.bookmark)), OTHER_LEDGER);
        assert_unusable(&scene.refusal(&since(&base.backup)), OTHER_LEDGER);
        let error = scene.refusal(&format!("SELECT stillpoint.begin_backup('{TOOL}')"));
        assert!(error.hint().is_some_and(|it| it.contains("register_consumer")), "{error:?}");
        scene.session.exec(&format!("SELECT stillpoint.register_consumer('{TOOL}')"));
        let backup = back_up(&mut scene.session);
        assert_eq!((backup.complete, backup.reason.as_deref()), (false, Some(FIRST)), "{anew:?}");
        let next = scene.base();
        assert_unusable(&scene.refusal(&between(&base.bookmark, &next.bookmark)), OTHER_LEDGER);
        scene.assert_whole(&next);
    }
}

#[test]
fn a_ledger_whose_drop_is_rolled_back_has_no_gap() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.session.exec(
        "BEGIN; DROP EXTENSION stillpoint; TRUNCATE t; CREATE EXTENSION stillpoint; ROLLBACK",
    );
    scene.session.exec("BEGIN; SAVEPOINT s; DROP EXTENSION stillpoint; ROLLBACK TO s; COMMIT");
    scene.assert_whole(&base);
}

#[test]
fn another_clusters_bookmark_is_told_to_be_one() {
    let (mut scene, mut other) =
        (Scene::new(), Scene::with(ClusterOptions::default().own_identifier()));
    let (base, foreign) = (scene.base(), other.base());
    let message = "the bookmark was taken in another cluster";
    for sql in [
        since(&foreign.bookmark),
        between(&foreign.bookmark, &base.bookmark),
        between(&base.bookmark, &foreign.bookmark),
    ] {
        assert_unusable(&scene.refusal(&sql), message);
    }
    scene.assert_whole(&base);
}

#[test]
fn another_databases_bookmark_is_told_to_be_one_and_where_to_ask() {
    let mut scene = Scene::new();
    scene.cluster.create_database("other");
    scene.cluster.create_extension("other");
    let foreign = scene.cluster.session("other").text("SELECT stillpoint.bookmark()");
    let base = scene.base();
    assert_told_to_be_of_another_database(&mut scene, &foreign, &base);
    scene.cluster.drop_database("other");
    assert_told_to_be_of_another_database(&mut scene, &foreign, &base);
    scene.assert_whole(&base);
}

#[track_caller]
fn assert_told_to_be_of_another_database(scene: &mut Scene, foreign: &str, base: &Base) {
    for sql in [since(foreign), between(foreign, &base.bookmark), between(&base.bookmark, foreign)]
    {
        let error = scene.refusal(&sql);
        assert_eq!(error.message(), "the bookmark was taken in another database");
        assert_eq!(error.code().code(), "55000", "{error:?}");
        assert!(error.hint().is_some_and(|it| it.contains("where it was taken")), "{error:?}");
    }
}

#[test]
fn a_database_that_has_the_name_of_a_dropped_one_does_not_know_its_bookmarks() {
    let scene = Scene::new();
    let made = || {
        scene.cluster.create_database("other");
        scene.cluster.create_extension("other");
        let bookmark = scene.cluster.session("other").text("SELECT stillpoint.bookmark()");
        (bookmark, scene.cluster.session("other"))
    };
    let (old, session) = made();
    drop(session);
    scene.cluster.drop_database("other");
    let (_, mut session) = made();
    let error = refusal(&scene.cluster, &mut session, &since(&old));
    assert_eq!(error.code().code(), "55000", "{error:?}");
    drop(session);
}

/// A database whose ledger has bookmarks, and nobody in it.
#[track_caller]
fn original(scene: &mut Scene, statement: &str) -> Base {
    scene.cluster.create_database("original");
    scene.cluster.create_extension("original");
    let mut session = scene.cluster.session("original");
    session.exec(TABLES);
    session.exec(&format!("SELECT stillpoint.register_consumer('{TOOL}')"));
    let base = Base::take(&mut session);
    session.exec(statement);
    drop(session);
    let nobody = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = 'original')";
    wait_until(&mut scene.session, nobody);
    base
}

#[test]
fn a_database_that_was_made_from_a_template_does_not_know_its_bookmarks_and_begins_anew() {
    // Before 15 there was one way only, the second one.
    for strategy in ["STRATEGY wal_log", "STRATEGY file_copy", ""] {
        let mut scene = Scene::new();
        if scene.cluster.major_version() < 15 && !strategy.is_empty() {
            continue;
        }
        let base = original(&mut scene, "TRUNCATE t");
        scene.session.exec(&format!("CREATE DATABASE copy TEMPLATE original {strategy}"));
        let mut copy = scene.cluster.session("copy");
        let error = refusal(&scene.cluster, &mut copy, &since(&base.bookmark));
        assert_eq!(error.message(), "the bookmark was taken in another database");
        let backup = back_up(&mut copy);
        assert!(!backup.complete && backup.base.is_none(), "{backup:?}");
        assert_eq!(backup.reason.as_deref(), Some("the bookmark is not known"), "{backup:?}");
        let base_of_copy = Base::take(&mut copy);
        copy.exec("TRUNCATE t");
        assert_whole(&mut copy, &base_of_copy);
        drop(copy);
        // The original is none the worse for it.
        let mut session = scene.cluster.session("original");
        assert_whole(&mut session, &base);
        drop(session);
    }
}

#[test]
fn a_database_that_comes_back_under_its_old_number_by_way_of_a_copy_has_a_gap() {
    let mut scene = Scene::new();
    if scene.cluster.major_version() < 15 {
        eprintln!("skipped: before 15 nobody could choose the number");
        return;
    }
    let base = original(&mut scene, "SELECT");
    let number = scene.session.text("SELECT oid FROM pg_database WHERE datname = 'original'");
    scene.session.exec("CREATE DATABASE copy TEMPLATE original");
    scene.cluster.session("copy").exec("TRUNCATE t");
    scene.session.exec("DROP DATABASE original");
    let nobody = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = 'copy')";
    wait_until(&mut scene.session, nobody);
    scene.session.exec(&format!("CREATE DATABASE original TEMPLATE copy OID {number}"));
    let mut session = scene.cluster.session("original");
    let message = "the database has been made of a copy since the bookmark was taken";
    let error = refusal(&scene.cluster, &mut session, &since(&base.bookmark));
    assert_unusable(&error, message);
    // Its own bookmarks are as good as any.
    let base = Base::take(&mut session);
    assert_whole(&mut session, &base);
    drop(session);
}
