//! Transactions that are prepared while nothing records, and end under a server that does.

use stillpoint_tests::Cluster;

use crate::standby::catch_up;
use crate::{ARMED, Base, DATABASE, INTERRUPTED, Scene, UNARMED, files, replaced, since, told};

const UNRECORDED_PREPARED: &str =
    "the bookmark was taken while a transaction was prepared that may not be recorded";

/// Prepares a truncation of `t` in a server that does not record, and starts one that does.
#[track_caller]
fn prepare_unrecorded(scene: &mut Scene, database: &str) {
    scene.meanwhile(Cluster::stop, |cluster| {
        cluster.append_setting(UNARMED);
        cluster.start_server();
        cluster.session(database).exec("BEGIN; TRUNCATE t; PREPARE TRANSACTION 'p'");
        cluster.stop();
        cluster.append_setting(ARMED);
    });
}

#[test]
fn a_bookmark_vouches_for_nothing_that_was_prepared_by_a_server_without_the_library() {
    let mut scene = Scene::new();
    let before = scene.base();
    prepare_unrecorded(&mut scene, DATABASE);
    let base = scene.base();
    for sql in [since(&base.bookmark), since(&base.backup)] {
        crate::assert_unusable(&scene.refusal(&sql), UNRECORDED_PREPARED);
    }
    scene.session.exec("COMMIT PREPARED 'p'");
    crate::assert_unusable(&scene.refusal(&since(&before.bookmark)), INTERRUPTED);
    scene.assert_gap(&base, UNRECORDED_PREPARED);
}

#[test]
fn a_bookmark_vouches_for_nothing_that_was_prepared_before_the_server_came_to_record_and_crashed() {
    let mut scene = Scene::new();
    prepare_unrecorded(&mut scene, DATABASE);
    scene.wait_until_start_is_noted();
    scene.meanwhile(Cluster::kill, |_| {});
    let base = scene.base();
    scene.session.exec("COMMIT PREPARED 'p'");
    scene.assert_gap(&base, UNRECORDED_PREPARED);
}

/// As if the clock had been set back between that and the start of the server that records.
#[test]
fn a_bookmark_vouches_for_nothing_that_was_prepared_unrecorded_whatever_the_clock_says() {
    let mut scene = Scene::new();
    prepare_unrecorded(&mut scene, DATABASE);
    scene.wait_until_start_is_noted();
    let path = scene.cluster.data_directory().join("stillpoint.witness");
    let witness = std::fs::read(path).expect("the server has written it");
    let mut witness: serde_json::Value = serde_json::from_slice(&witness).expect("JSON");
    witness["since"] = 0.into();
    scene.cluster.put_file("stillpoint.witness", &witness.to_string());
    let base = scene.base();
    scene.session.exec("COMMIT PREPARED 'p'");
    scene.assert_gap(&base, UNRECORDED_PREPARED);
}

#[test]
fn a_promoted_standby_vouches_for_nothing_that_its_primary_has_prepared_unrecorded() {
    let mut scene = Scene::new();
    let standby = scene.cluster.start_standby();
    scene.restart_with(UNARMED);
    scene.session.exec("BEGIN; TRUNCATE t; PREPARE TRANSACTION 'p'");
    let mut session = standby.session(DATABASE);
    catch_up(&mut scene.session, &mut session);
    assert!(session.yes("SELECT pg_promote()"));
    let base = Base::take(&mut session);
    session.exec("COMMIT PREPARED 'p'");
    let reason = UNRECORDED_PREPARED;
    crate::assert_gap(&standby, &mut session, &base, reason, reason);
    drop(session);
}

#[test]
fn what_is_prepared_in_another_database_is_no_gap_here() {
    let mut scene = Scene::new();
    scene.cluster.create_database("other");
    scene.cluster.session("other").exec("CREATE TABLE t (id int)");
    prepare_unrecorded(&mut scene, "other");
    let base = scene.base();
    scene.cluster.session("other").exec("COMMIT PREPARED 'p'");
    scene.assert_whole(&base);
}

/// Prepares a recorded truncation, ends the server in some way, and commits after the bookmark.
#[track_caller]
fn assert_told_when_committed(end: fn(&mut Cluster), bookmark_first: bool) {
    let mut scene = Scene::new();
    scene.wait_until_start_is_noted();
    let earlier = bookmark_first.then(|| scene.base());
    scene.session.exec("BEGIN; TRUNCATE t; PREPARE TRANSACTION 'p'");
    let base = earlier.unwrap_or_else(|| scene.base());
    scene.wait_until_start_is_noted();
    scene.meanwhile(end, |_| {});
    scene.session.exec("COMMIT PREPARED 'p'");
    let expected = replaced(&base.files, &files(&mut scene.session));
    assert!(!expected.is_empty());
    assert_eq!(told(&mut scene.session, &since(&base.bookmark), &base.files), expected);
    scene.assert_whole(&base);
}

#[test]
fn what_was_prepared_with_its_record_is_told_when_it_commits_however_servers_end_meanwhile() {
    for end in [Cluster::stop, Cluster::stop_immediate, Cluster::kill] {
        assert_told_when_committed(end, true);
        assert_told_when_committed(end, false);
    }
}

#[test]
fn what_was_prepared_with_its_record_and_is_rolled_back_is_no_gap() {
    let mut scene = Scene::new();
    scene.wait_until_start_is_noted();
    scene.session.exec("BEGIN; TRUNCATE t; PREPARE TRANSACTION 'p'");
    let base = scene.base();
    scene.meanwhile(Cluster::stop, |_| {});
    scene.session.exec("ROLLBACK PREPARED 'p'");
    scene.assert_whole(&base);
}
