//! The server has run without the library, which leaves no sign in any database.

use postgres::error::SqlState;
use stillpoint_tests::Cluster;

use crate::{ARMED, Base, DATABASE, INTERRUPTED, Scene, TABLES, TOOL, UNARMED};
use crate::{assert_gap, between, files, replaced, since, take_bookmark, told};

const FORGET_TO_RECORD: &str = "TRUNCATE t";

/// Ends the server that records, runs one without the library in which something is replaced, ends
/// that, and goes on as if nothing had been.
#[track_caller]
fn assert_noticed(end: fn(&mut Cluster), unarmed_end: fn(&mut Cluster)) {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.wait_until_start_is_noted();
    scene.meanwhile(end, |cluster| {
        run_unarmed(cluster, FORGET_TO_RECORD, unarmed_end);
    });
    scene.assert_gap(&base, INTERRUPTED);
}

#[track_caller]
fn run_unarmed(cluster: &mut Cluster, statement: &str, end: fn(&mut Cluster)) {
    cluster.append_setting(UNARMED);
    cluster.start_server();
    cluster.session(DATABASE).exec(statement);
    end(cluster);
    cluster.append_setting(ARMED);
}

#[test]
fn a_server_that_ran_without_the_library_and_ended_well_has_left_a_gap() {
    assert_noticed(Cluster::stop, Cluster::stop);
}

#[test]
fn a_server_that_ran_without_the_library_and_crashed_has_left_a_gap() {
    assert_noticed(Cluster::stop, Cluster::stop_immediate);
    assert_noticed(Cluster::stop, Cluster::kill);
}

#[test]
fn a_server_that_ran_without_the_library_after_a_crash_has_left_a_gap() {
    assert_noticed(Cluster::kill, Cluster::stop);
    assert_noticed(Cluster::stop_immediate, Cluster::stop);
}

#[test]
fn a_server_that_ran_without_the_library_between_two_crashes_has_left_a_gap() {
    assert_noticed(Cluster::kill, Cluster::kill);
    assert_noticed(Cluster::stop_immediate, Cluster::stop_immediate);
}

#[test]
fn a_server_that_was_started_without_the_library_and_crashed_at_once_is_not_trusted() {
    for end in [Cluster::stop, Cluster::kill] {
        let mut scene = Scene::new();
        let base = scene.base();
        scene.wait_until_start_is_noted();
        scene.meanwhile(end, |cluster| {
            cluster.append_setting(UNARMED);
            cluster.start_server();
            cluster.kill();
            cluster.append_setting(ARMED);
        });
        scene.assert_gap(&base, INTERRUPTED);
    }
}

#[test]
fn a_gap_is_one_for_ever() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.meanwhile(Cluster::stop, |cluster| {
        run_unarmed(cluster, FORGET_TO_RECORD, Cluster::stop);
    });
    scene.meanwhile(Cluster::stop, |_| {});
    scene.wait_until_start_is_noted();
    scene.meanwhile(Cluster::kill, |_| {});
    scene.assert_gap(&base, INTERRUPTED);
}

#[test]
fn a_gap_is_one_for_every_database() {
    let mut scene = Scene::new();
    scene.cluster.create_database("other");
    scene.cluster.create_extension("other");
    let mut other = scene.cluster.session("other");
    other.exec(TABLES);
    other.exec(&format!("SELECT stillpoint.register_consumer('{TOOL}')"));
    let (base, base_of_other) = (scene.base(), Base::take(&mut other));
    scene.meanwhile(Cluster::stop, |cluster| {
        run_unarmed(cluster, FORGET_TO_RECORD, Cluster::stop);
    });
    let mut other = scene.cluster.session("other");
    assert_gap(&scene.cluster, &mut other, &base_of_other, INTERRUPTED, INTERRUPTED);
    scene.assert_gap(&base, INTERRUPTED);
}

#[test]
fn a_server_without_the_library_vouches_for_nothing_and_says_what_to_do() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.restart_with(UNARMED);
    for question in [
        since(&base.bookmark),
        "SELECT stillpoint.bookmark()".to_owned(),
        format!("SELECT stillpoint.begin_backup('{TOOL}')"),
    ] {
        let error = scene.refusal(&question);
        assert_eq!(error.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error:?}");
        let hint = error.hint().unwrap_or_default();
        assert!(hint.contains("shared_preload_libraries"), "{error:?}");
        assert!(hint.contains("full backup"), "{error:?}");
    }
}

#[test]
fn a_server_without_the_library_answers_what_is_not_about_its_own_time() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.session.exec("TRUNCATE t");
    let upto = take_bookmark(&mut scene.session);
    scene.restart_with(UNARMED);
    let expected = replaced(&base.files, &files(&mut scene.session));
    assert_eq!(told(&mut scene.session, &between(&base.bookmark, &upto), &base.files), expected);
}
