//! Transactions that are prepared while nothing records, and end under a server that does.

use stillpoint_tests::Cluster;

use crate::{ARMED, DATABASE, INTERRUPTED, Scene, UNARMED, files, paths, replaced, since};

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
    let earlier = bookmark_first.then(|| scene.base());
    scene.session.exec("BEGIN; TRUNCATE t; PREPARE TRANSACTION 'p'");
    let base = earlier.unwrap_or_else(|| scene.base());
    scene.wait_until_start_is_noted();
    scene.meanwhile(end, |_| {});
    scene.session.exec("COMMIT PREPARED 'p'");
    let expected = replaced(&base.files, &files(&mut scene.session));
    assert!(!expected.is_empty());
    assert_eq!(paths(&mut scene.session, &since(&base.bookmark)), expected);
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
    scene.session.exec("BEGIN; TRUNCATE t; PREPARE TRANSACTION 'p'");
    let base = scene.base();
    scene.meanwhile(Cluster::stop, |_| {});
    scene.session.exec("ROLLBACK PREPARED 'p'");
    scene.assert_whole(&base);
}
