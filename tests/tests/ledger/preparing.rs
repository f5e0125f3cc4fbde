//! Prepared transactions: recorded with what they have done, and by nobody else.

use postgres::error::SqlState;
use stillpoint_tests::Cluster;

use crate::{DATABASE, Scene, T, refusal, whole};

#[test]
fn a_prepared_truncation_is_told_when_another_session_commits_it() {
    let mut scene = Scene::new(T);
    let watch = scene.watch();
    scene.session.exec("BEGIN; TRUNCATE t");
    let xid = scene.session.number("SELECT pg_current_xact_id()");
    scene.session.exec("PREPARE TRANSACTION 'p'");
    assert!(watch.entries(&mut scene.observer).is_empty());
    scene.observer.exec("COMMIT PREPARED 'p'");
    assert_eq!(watch.told(&mut scene.observer), whole("replaced", "t", "TRUNCATE TABLE"));
    let entries = watch.entries(&mut scene.observer);
    assert!(entries.iter().all(|entry| entry.xid as i64 == xid), "{entries:?}");
}

#[test]
fn a_prepared_truncation_that_is_rolled_back_leaves_no_row() {
    let mut scene = Scene::new(T);
    let watch = scene.watch();
    scene.session.exec("BEGIN; TRUNCATE t; DROP TABLE t; PREPARE TRANSACTION 'p'");
    scene.observer.exec("ROLLBACK PREPARED 'p'");
    assert_eq!(watch.told(&mut scene.observer), [""; 0]);
}

#[test]
fn what_the_session_does_after_it_has_prepared_is_its_own() {
    let mut scene = Scene::new(T);
    scene.session.exec("CREATE TABLE a (id int)");
    let watch = scene.watch();
    scene.session.exec("BEGIN; TRUNCATE t; PREPARE TRANSACTION 'p'");
    scene.session.exec("TRUNCATE a");
    assert_eq!(watch.told(&mut scene.observer), ["replaced a by TRUNCATE TABLE"]);
    scene.session.exec("COMMIT PREPARED 'p'");
    let entries = watch.entries(&mut scene.observer);
    let xid = |name: &str| entries.iter().find(|entry| entry.name == name).map(|entry| entry.xid);
    assert!(xid("t") < xid("a"), "{entries:?}");
}

#[test]
fn a_prepared_truncation_survives_a_crash_with_its_record() {
    let mut scene = Scene::new(T);
    let watch = scene.watch();
    scene.session.exec("BEGIN; TRUNCATE t; PREPARE TRANSACTION 'p'");
    scene.cluster.stop_immediate();
    scene.cluster.start_server();
    let mut session = scene.cluster.session(DATABASE);
    assert!(watch.entries(&mut session).is_empty());
    session.exec("COMMIT PREPARED 'p'");
    assert_eq!(watch.told(&mut session), whole("replaced", "t", "TRUNCATE TABLE"));
}

/// Whether the ledger says since when it is complete.
const VOUCHES: &str = "SELECT complete_since IS NOT NULL FROM stillpoint.status()";

#[test]
fn a_ledger_does_not_begin_while_something_is_prepared_that_it_knows_nothing_of() {
    let cluster = Cluster::preloaded();
    cluster.create_database("other");
    let mut session = cluster.session(DATABASE);
    session.exec(T);
    session.exec("BEGIN; TRUNCATE t; PREPARE TRANSACTION 'p'");
    let error = refusal(&cluster, &mut session, "CREATE EXTENSION stillpoint");
    assert_eq!(error.code(), &SqlState::OBJECT_IN_USE, "{error}");
    assert!(error.detail().is_some_and(|detail| detail.contains("\"p\"")), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("COMMIT PREPARED")), "{error}");
    // What is prepared in another database is none of its business.
    cluster.create_extension("other");

    session.exec("CREATE EXTENSION stillpoint VERSION '0.1.0'");
    let error = refusal(&cluster, &mut session, "ALTER EXTENSION stillpoint UPDATE");
    assert_eq!(error.code(), &SqlState::OBJECT_IN_USE, "{error}");
    session.exec("COMMIT PREPARED 'p'");
    session.exec("ALTER EXTENSION stillpoint UPDATE");
    assert!(session.yes(VOUCHES));
}

#[test]
fn a_ledger_vouches_for_nothing_while_something_is_prepared_that_is_older_than_its_completeness() {
    let mut scene = Scene::new(T);
    scene.session.exec("BEGIN; TRUNCATE t; PREPARE TRANSACTION 'p'");
    // Its record was written by a server that had the library.
    assert!(scene.observer.yes(VOUCHES));
    scene.cluster.restart();
    assert!(scene.cluster.session(DATABASE).yes(VOUCHES));
    scene.cluster.restart_with("shared_preload_libraries = ''");
    scene.cluster.restart_with("shared_preload_libraries = 'stillpoint'");
    let mut session = scene.cluster.session(DATABASE);
    assert!(!session.yes(VOUCHES));
    session.exec("COMMIT PREPARED 'p'");
    assert!(session.yes(VOUCHES));
    session.exec("BEGIN; TRUNCATE t; PREPARE TRANSACTION 'q'");
    assert!(session.yes(VOUCHES));
    session.exec("ROLLBACK PREPARED 'q'");
}
