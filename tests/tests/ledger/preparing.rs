//! Prepared transactions: recorded with what they have done, and by nobody else.

use crate::{DATABASE, Scene, T, whole};

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
