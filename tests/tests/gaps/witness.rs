//! The file in the data directory that tells of gaps: what becomes of answers when it is not there,
//! cannot be read, or cannot be written.

use std::fs;

use postgres::error::SqlState;
use stillpoint_tests::Cluster;

use crate::{ARMED, DATABASE, INTERRUPTED, Scene, TOOL, UNARMED, UNARMED_OPTION, files, since};

const FILE: &str = "stillpoint.witness";

/// A directory of that name is in the way of whoever writes the file.
const IN_THE_WAY: &str = "stillpoint.witness.new";

#[track_caller]
fn get_in_the_way(cluster: &Cluster) {
    fs::create_dir(cluster.data_directory().join(IN_THE_WAY)).expect("the directory is writable");
}

#[track_caller]
fn get_out_of_the_way(cluster: &Cluster) {
    fs::remove_dir(cluster.data_directory().join(IN_THE_WAY)).expect("it is empty");
}

/// Nothing is answered, and whoever asks is told why and what to do.
#[track_caller]
fn assert_nothing_is_answered(scene: &mut Scene, bookmark: &str) {
    for sql in [
        since(bookmark),
        "SELECT stillpoint.bookmark()".to_owned(),
        format!("SELECT * FROM stillpoint.begin_backup('{TOOL}')"),
    ] {
        let error = scene.refusal(&sql);
        assert_eq!(error.code(), &SqlState::IO_ERROR, "{error:?}");
        assert!(error.message().contains(FILE), "{error:?}");
        let hint = error.hint().unwrap_or_default();
        assert!(hint.contains("Restart") && hint.contains("full backup"), "{error:?}");
    }
}

#[test]
fn without_the_file_nothing_is_answered_until_the_server_has_started_again() {
    for content in [None, Some(""), Some("{}"), Some("{\"version\":2}"), Some("\0\0\0\0")] {
        let mut scene = Scene::new();
        let base = scene.base();
        scene.wait_until_start_is_noted();
        match content {
            None => {
                fs::remove_file(scene.cluster.data_directory().join(FILE)).expect("it is there");
            }
            Some(text) => scene.cluster.put_file(FILE, text),
        }
        // What is recorded goes on.
        scene.session.exec("TRUNCATE t");
        assert_nothing_is_answered(&mut scene, &base.bookmark);
        scene.cluster.allow_log("could not keep file \"stillpoint.witness\"");
        scene.meanwhile(Cluster::stop, |_| {});
        scene.assert_gap(&base, INTERRUPTED);
    }
}

#[test]
fn what_is_not_recorded_fails_if_that_cannot_be_noted() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.wait_until_start_is_noted();
    get_in_the_way(&scene.cluster);
    let before = files(&mut scene.session);
    scene.session.exec("SET stillpoint.enabled = off");
    for statement in ["TRUNCATE t", "DROP TABLE t", "VACUUM t", "VACUUM FULL t"] {
        let error = scene.refusal(statement);
        assert_eq!(error.code(), &SqlState::IO_ERROR, "{error:?}");
        assert!(
            error.hint().is_some_and(|it| it.contains("shared_preload_libraries")),
            "{error:?}"
        );
        assert_eq!(files(&mut scene.session), before, "{statement}");
    }
    let _ = scene.refusal("BEGIN; TRUNCATE t; PREPARE TRANSACTION 'p'");
    scene.session.exec("RESET stillpoint.enabled");
    get_out_of_the_way(&scene.cluster);
    scene.assert_whole(&base);
}

#[test]
fn a_gap_that_a_server_cannot_note_at_its_start_is_not_forgotten() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.cluster.allow_log("could not keep file \"stillpoint.witness\"");
    scene.meanwhile(Cluster::stop, |cluster| {
        cluster.append_setting(UNARMED);
        cluster.start_server();
        cluster.session(DATABASE).exec("TRUNCATE t");
        cluster.stop();
        cluster.append_setting(ARMED);
        get_in_the_way(cluster);
    });
    assert_nothing_is_answered(&mut scene, &base.bookmark);
    get_out_of_the_way(&scene.cluster);
    assert_nothing_is_answered(&mut scene, &base.bookmark);
    scene.meanwhile(Cluster::stop, |_| {});
    scene.assert_gap(&base, INTERRUPTED);
}

#[test]
fn a_server_that_could_not_note_its_end_is_not_taken_for_one_that_has_crashed() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.wait_until_start_is_noted();
    get_in_the_way(&scene.cluster);
    scene.cluster.allow_log("could not keep file \"stillpoint.witness\"");
    scene.meanwhile(Cluster::stop, |cluster| {
        get_out_of_the_way(cluster);
        // Nothing is to be recovered at its start, and it writes no file that others do.
        let mut single = cluster.single_user(UNARMED_OPTION, DATABASE);
        single.exec("TRUNCATE t");
        single.kill();
    });
    scene.assert_gap(&base, INTERRUPTED);
}
