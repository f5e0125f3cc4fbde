//! Where every server had the library nothing is missing, however they ended.

use stillpoint_tests::{Cluster, server_program};

use crate::{ARMED_OPTION, DATABASE, Scene, UNARMED_OPTION, take_bookmark};

/// Works, ends the server, and starts it again.
#[track_caller]
fn go_through(scene: &mut Scene, end: fn(&mut Cluster)) {
    scene.session.exec("TRUNCATE t");
    scene.wait_until_start_is_noted();
    scene.meanwhile(end, |_| {});
}

#[track_caller]
fn assert_whole_after(ends: &[fn(&mut Cluster)]) {
    let mut scene = Scene::new();
    let base = scene.base();
    for end in ends {
        go_through(&mut scene, *end);
    }
    scene.assert_whole(&base);
}

#[test]
fn a_restart_leaves_no_gap() {
    assert_whole_after(&[Cluster::stop]);
}

#[test]
fn an_immediate_stop_leaves_no_gap() {
    assert_whole_after(&[Cluster::stop_immediate]);
}

#[test]
fn a_killed_server_leaves_no_gap() {
    assert_whole_after(&[Cluster::kill]);
}

#[test]
fn servers_that_end_one_after_the_other_in_every_way_leave_no_gap() {
    let (stop, crash, kill) = (Cluster::stop, Cluster::stop_immediate, Cluster::kill);
    assert_whole_after(&[stop, stop, crash, crash, kill, kill, stop, kill, crash, stop]);
}

#[test]
fn a_restart_with_nothing_done_before_and_after_leaves_no_gap() {
    for end in [Cluster::stop, Cluster::stop_immediate, Cluster::kill] {
        let mut scene = Scene::new();
        let base = scene.base();
        for _ in 0..3 {
            scene.wait_until_start_is_noted();
            scene.meanwhile(end, |_| {});
        }
        scene.assert_whole(&base);
    }
}

#[test]
fn a_killed_session_leaves_no_gap() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.session.exec("TRUNCATE t");
    scene.cluster.kill_backend(scene.session.pid());
    scene.session = scene.cluster.session(DATABASE);
    scene.assert_whole(&base);
}

#[test]
fn a_killed_session_a_bookmark_and_then_a_killed_server_leave_no_gap() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.wait_until_start_is_noted();
    scene.cluster.kill_backend(scene.session.pid());
    scene.session = scene.cluster.session(DATABASE);
    // The server itself has recovered, as another one could have done that did not record.
    let _ = take_bookmark(&mut scene.session);
    scene.meanwhile(Cluster::kill, |_| {});
    scene.assert_whole(&base);
}

#[test]
fn a_second_server_that_is_refused_leaves_no_gap() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.wait_until_start_is_noted();
    let refused = server_program(&scene.cluster, "postgres").args(["-c", UNARMED_OPTION]);
    let finished = refused.arg("-D").arg(scene.cluster.data_directory()).run();
    finished.assert_stderr("lock file \"postmaster.pid\" already exists");
    scene.meanwhile(Cluster::kill, |_| {});
    scene.assert_whole(&base);
}

#[test]
fn a_server_that_is_asked_for_a_setting_leaves_no_gap() {
    for setting in [ARMED_OPTION, UNARMED_OPTION] {
        let mut scene = Scene::new();
        let base = scene.base();
        scene.wait_until_start_is_noted();
        scene.meanwhile(Cluster::kill, |cluster| ask_for_a_setting(cluster, setting));
        scene.meanwhile(Cluster::stop, |cluster| ask_for_a_setting(cluster, setting));
        scene.assert_whole(&base);
    }
}

/// Since 15 that loads the libraries, to know how much memory they ask for.
#[track_caller]
fn ask_for_a_setting(cluster: &mut Cluster, setting: &str) {
    let name = if cluster.major_version() < 15 { "max_connections" } else { "shared_memory_size" };
    let asked = server_program(cluster, "postgres").args(["-C", name, "-c"]);
    let asked = asked.args([setting, "-D"]).arg(cluster.data_directory()).run();
    asked.assert_exit(0);
}
