//! The server in single-user mode, which administrators use when nothing else helps.

use stillpoint_tests::{Cluster, SingleUser};

use crate::{ARMED_OPTION, DATABASE, INTERRUPTED, Scene, UNARMED_OPTION};

/// Ends the server, works in single-user mode, ends that, and starts the server.
#[track_caller]
fn single_user(scene: &mut Scene, end: fn(&mut Cluster), setting: &str, over: fn(SingleUser)) {
    scene.wait_until_start_is_noted();
    scene.meanwhile(end, |cluster| {
        let mut single = cluster.single_user(setting, DATABASE);
        single.exec("TRUNCATE t");
        over(single);
    });
}

#[track_caller]
fn assert_noticed(end: fn(&mut Cluster), over: fn(SingleUser)) {
    let mut scene = Scene::new();
    let base = scene.base();
    single_user(&mut scene, end, UNARMED_OPTION, over);
    scene.assert_gap(&base, INTERRUPTED);
}

#[test]
fn single_user_mode_without_the_library_leaves_a_gap() {
    assert_noticed(Cluster::stop, SingleUser::quit);
}

#[test]
fn single_user_mode_without_the_library_that_is_killed_leaves_a_gap() {
    assert_noticed(Cluster::stop, SingleUser::kill);
}

#[test]
fn single_user_mode_without_the_library_after_a_crash_leaves_a_gap() {
    assert_noticed(Cluster::kill, SingleUser::quit);
}

#[test]
fn single_user_mode_without_the_library_between_two_crashes_leaves_a_gap() {
    assert_noticed(Cluster::kill, SingleUser::kill);
}

#[test]
fn single_user_mode_with_the_library_records_and_leaves_no_gap() {
    let mut scene = Scene::new();
    let base = scene.base();
    single_user(&mut scene, Cluster::stop, ARMED_OPTION, SingleUser::quit);
    scene.assert_whole(&base);
}
