//! Copies of a data directory: restored backups, clones, and what `pg_upgrade` makes.

use stillpoint_tests::{Cluster, ClusterOptions, server_program};

use crate::{DATABASE, INTERRUPTED, Scene, back_up, take_bookmark};
use crate::{assert_gap, assert_unusable, assert_whole, files, refusal, since};

#[test]
fn a_copy_of_a_stopped_cluster_knows_what_the_original_knew_and_both_go_on() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.session.exec("TRUNCATE t");
    scene.cluster.stop();
    let mut copy = scene.cluster.copy();
    copy.start_server();
    scene.start();
    let mut session = copy.session(DATABASE);
    assert_whole(&mut session, &base);
    scene.assert_whole(&base);
    // From here on each has bookmarks of its own.
    let (here, there) = (scene.base(), crate::Base::take(&mut session));
    for (cluster, session, foreign) in
        [(&scene.cluster, &mut scene.session, &there), (&copy, &mut session, &here)]
    {
        let error = refusal(cluster, session, &since(&foreign.bookmark));
        assert_eq!(error.hint(), Some(crate::FULL), "{error:?}");
    }
    drop(session);
}

#[test]
fn a_copy_of_a_crashed_cluster_is_not_trusted() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.wait_until_start_is_noted();
    scene.cluster.kill();
    let mut copy = scene.cluster.copy();
    copy.start_server();
    let mut session = copy.session(DATABASE);
    assert_gap(&copy, &mut session, &base, INTERRUPTED, INTERRUPTED);
    drop(session);
    // The original is where it was.
    scene.start();
    scene.assert_whole(&base);
}

#[test]
fn a_base_backup_that_is_started_elsewhere_is_not_trusted() {
    let mut scene = Scene::new();
    let base = scene.base();
    let mut restored = scene.cluster.base_backup();
    restored.start_server();
    let mut session = restored.session(DATABASE);
    assert_gap(&restored, &mut session, &base, INTERRUPTED, INTERRUPTED);
    drop(session);
    scene.assert_whole(&base);
}

#[test]
fn a_base_backup_that_was_in_use_without_the_library_is_not_trusted() {
    let mut scene = Scene::new();
    let base = scene.base();
    let mut restored = scene.cluster.base_backup();
    restored.append_setting(crate::UNARMED);
    restored.start_server();
    restored.session(DATABASE).exec("TRUNCATE t");
    restored.append_setting(crate::ARMED);
    restored.restart();
    let mut session = restored.session(DATABASE);
    assert_gap(&restored, &mut session, &base, INTERRUPTED, INTERRUPTED);
    drop(session);
}

#[test]
fn a_cluster_whose_control_file_was_reset_is_not_trusted() {
    for end in [Cluster::stop, Cluster::kill] {
        let mut scene = Scene::new();
        let base = scene.base();
        scene.wait_until_start_is_noted();
        scene.session.exec("CHECKPOINT");
        scene.meanwhile(end, |cluster| {
            let _ = std::fs::remove_file(cluster.data_directory().join("postmaster.pid"));
            let reset = server_program(cluster, "pg_resetwal").args(["-f", "-D"]);
            reset.arg(cluster.data_directory()).run().assert_exit(0);
        });
        scene.assert_gap(&base, INTERRUPTED);
    }
}

#[test]
fn an_upgraded_cluster_knows_no_bookmark_and_its_consumers_are_told() {
    for mode in ["--jobs=1", "--link"] {
        let mut scene = Scene::new();
        let base = scene.base();
        scene.session.exec("TRUNCATE t");
        scene.cluster.stop();
        let mut new = ClusterOptions::default().preload().own_identifier().start();
        new.stop();
        upgrade(&scene.cluster, &new, mode);
        new.start_server();
        let mut session = new.session(DATABASE);
        let message = "the bookmark was taken in another cluster";
        for bookmark in [&base.bookmark, &base.backup] {
            assert_unusable(&refusal(&new, &mut session, &since(bookmark)), message);
        }
        let backup = back_up(&mut session);
        assert!(!backup.complete, "{backup:?}");
        assert_eq!(backup.reason.as_deref(), Some(INTERRUPTED), "{backup:?}");
        let next = crate::Base {
            backup: backup.bookmark,
            bookmark: take_bookmark(&mut session),
            files: files(&mut session),
        };
        assert_whole(&mut session, &next);
        drop(session);
    }
}

/// Upgrades the data of one cluster into another, of the same version here.
#[track_caller]
fn upgrade(old: &Cluster, new: &Cluster, mode: &str) {
    let bindir = old.bindir();
    let finished = server_program(new, "pg_upgrade")
        .args(["--username=postgres", mode, "--old-datadir"])
        .arg(old.data_directory())
        .arg("--new-datadir")
        .arg(new.data_directory())
        .arg("--old-bindir")
        .arg(bindir)
        .arg("--new-bindir")
        .arg(bindir)
        .args(["--old-port", &old.port().to_string(), "--new-port", &new.port().to_string()])
        .arg("--socketdir")
        .arg(new.host())
        .current_directory(new.host())
        .run();
    finished.assert_exit(0);
}
