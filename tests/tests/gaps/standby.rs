//! Standbys: what they tell while they follow, and what becomes of bookmarks when one is promoted.

use postgres::error::SqlState;
use stillpoint_tests::{Session, wait_until};

use crate::{
    ARMED, Base, DATABASE, INTERRUPTED, Scene, TOOL, UNARMED, assert_gap, assert_unusable, between,
    files, refusal, replaced, since, take_bookmark, told,
};

/// Waits until the standby has replayed all that its primary has written until now.
#[track_caller]
pub fn catch_up(primary: &mut Session, standby: &mut Session) {
    let now = primary.text("SELECT pg_current_wal_insert_lsn()");
    wait_until(standby, &format!("SELECT pg_last_wal_replay_lsn() >= '{now}'"));
}

#[track_caller]
fn promote(standby: &mut Session) {
    assert!(standby.yes("SELECT pg_promote()"));
}

#[test]
fn a_promoted_standby_is_not_trusted_with_the_primarys_bookmarks() {
    let mut scene = Scene::new();
    let early = scene.base();
    let standby = scene.cluster.start_standby();
    let late = scene.base();
    scene.session.exec("TRUNCATE t");
    let mut session = standby.session(DATABASE);
    catch_up(&mut scene.session, &mut session);
    promote(&mut session);
    assert_unusable(&refusal(&standby, &mut session, &since(&early.bookmark)), INTERRUPTED);
    assert_gap(&standby, &mut session, &late, INTERRUPTED, INTERRUPTED);
    drop(session);
    scene.assert_whole(&late);
}

#[test]
fn a_promoted_standby_is_not_trusted_after_it_was_restarted_either() {
    let mut scene = Scene::new();
    let base = scene.base();
    let mut standby = scene.cluster.start_standby();
    let mut session = standby.session(DATABASE);
    catch_up(&mut scene.session, &mut session);
    standby.restart();
    let mut session = standby.session(DATABASE);
    promote(&mut session);
    standby.restart();
    let mut session = standby.session(DATABASE);
    assert_gap(&standby, &mut session, &base, INTERRUPTED, INTERRUPTED);
    drop(session);
}

/// The standby that a cluster is which was stopped well and goes on as one, of a primary that was
/// its standby until then.
#[test]
fn a_cluster_that_was_primary_before_and_after_another_is_not_trusted_with_its_first_bookmarks() {
    let mut scene = Scene::new();
    let base = scene.base();
    let mut other = scene.cluster.start_standby();
    // As a standby is that somebody has set up with less care.
    other.restart_with(UNARMED);
    let mut there = other.session(DATABASE);
    catch_up(&mut scene.session, &mut there);
    scene.cluster.stop();
    promote(&mut there);
    scene.cluster.follow(&other);
    scene.start();
    there.exec("TRUNCATE t");
    catch_up(&mut there, &mut scene.session);
    drop(there);
    other.stop();
    promote(&mut scene.session);
    scene.assert_gap(&base, INTERRUPTED);
}

#[test]
fn a_promoted_standby_that_was_made_of_a_stopped_cluster_is_not_trusted_with_its_bookmarks() {
    let mut scene = Scene::new();
    scene.cluster.stop();
    let mut standby = scene.cluster.copy();
    scene.start();
    standby.follow(&scene.cluster);
    standby.start_server();
    let base = scene.base();
    let mut session = standby.session(DATABASE);
    scene.session.exec("SET stillpoint.enabled = off; TRUNCATE t; RESET stillpoint.enabled");
    catch_up(&mut scene.session, &mut session);
    promote(&mut session);
    assert_gap(&standby, &mut session, &base, INTERRUPTED, INTERRUPTED);
    drop(session);
}

#[test]
fn a_standby_tells_what_its_primary_has_recorded() {
    let mut scene = Scene::new();
    let base = scene.base();
    let standby = scene.cluster.start_standby();
    let mut session = standby.session(DATABASE);
    scene.session.exec("TRUNCATE t");
    let upto = take_bookmark(&mut scene.session);
    scene.session.exec("TRUNCATE u");
    catch_up(&mut scene.session, &mut session);
    let expected = replaced(&base.files, &files(&mut session));
    assert_eq!(told(&mut session, &since(&base.bookmark), &base.files), expected);
    let question = between(&base.bookmark, &upto);
    let answer = told(&mut session, &question, &base.files);
    assert_eq!(answer, told(&mut scene.session, &question, &base.files));
    assert!(answer.is_subset(&expected) && !answer.is_empty(), "{answer:?}");
    drop(session);
}

#[test]
fn a_standby_takes_no_bookmark_and_says_where_one_is_to_be_had() {
    let scene = Scene::new();
    let standby = scene.cluster.start_standby();
    let mut session = standby.session(DATABASE);
    for sql in [
        "SELECT stillpoint.bookmark()".to_owned(),
        format!("SELECT * FROM stillpoint.begin_backup('{TOOL}')"),
    ] {
        let error = refusal(&standby, &mut session, &sql);
        assert_eq!(error.code(), &SqlState::READ_ONLY_SQL_TRANSACTION, "{error:?}");
        assert!(error.hint().is_some_and(|hint| hint.contains("on the primary")), "{error:?}");
    }
    drop(session);
}

#[test]
fn a_standby_says_that_it_has_not_come_to_a_bookmark_yet() {
    let mut scene = Scene::new();
    let base = scene.base();
    let standby = scene.cluster.start_standby();
    let mut session = standby.session(DATABASE);
    catch_up(&mut scene.session, &mut session);
    let _ = session.rows("SELECT pg_wal_replay_pause()");
    // Before 14 it was paused as soon as it was asked for.
    let paused = match standby.major_version() {
        14.. => "SELECT pg_get_wal_replay_pause_state() = 'paused'",
        _ => "SELECT pg_is_wal_replay_paused()",
    };
    wait_until(&mut session, paused);
    scene.session.exec("TRUNCATE t");
    let upto = take_bookmark(&mut scene.session);
    for sql in [since(&upto), between(&base.bookmark, &upto)] {
        let error = refusal(&standby, &mut session, &sql);
        assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error:?}");
        assert_eq!(error.message(), "this standby has not come to the bookmark yet");
        assert!(error.hint().is_some_and(|hint| hint.contains("Wait")), "{error:?}");
    }
    let _ = session.rows("SELECT pg_wal_replay_resume()");
    catch_up(&mut scene.session, &mut session);
    let expected = replaced(&base.files, &files(&mut session));
    assert_eq!(told(&mut session, &between(&base.bookmark, &upto), &base.files), expected);
    drop(session);
}

#[test]
fn a_standby_tells_of_its_primarys_gap_from_the_next_bookmark_on() {
    let mut scene = Scene::new();
    let base = scene.base();
    let standby = scene.cluster.start_standby();
    let mut session = standby.session(DATABASE);
    scene.restart_with(UNARMED);
    scene.session.exec("TRUNCATE t");
    scene.restart_with(ARMED);
    let upto = take_bookmark(&mut scene.session);
    catch_up(&mut scene.session, &mut session);
    for sql in [since(&base.bookmark), between(&base.bookmark, &upto)] {
        assert_unusable(&refusal(&standby, &mut session, &sql), INTERRUPTED);
    }
    let next = Base { bookmark: upto.clone(), backup: upto, files: files(&mut session) };
    scene.session.exec("TRUNCATE u");
    catch_up(&mut scene.session, &mut session);
    let expected = replaced(&next.files, &files(&mut session));
    assert_eq!(told(&mut session, &since(&next.bookmark), &next.files), expected);
    drop(session);
}

#[test]
fn a_standby_without_the_library_tells_what_is_in_the_ledger() {
    let mut scene = Scene::new();
    let base = scene.base();
    let mut standby = scene.cluster.start_standby();
    standby.restart_with(UNARMED);
    let mut session = standby.session(DATABASE);
    scene.session.exec("TRUNCATE t");
    catch_up(&mut scene.session, &mut session);
    let expected = replaced(&base.files, &files(&mut session));
    assert_eq!(told(&mut session, &since(&base.bookmark), &base.files), expected);
    drop(session);
}
