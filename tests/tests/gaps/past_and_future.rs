//! Bookmarks from before what the ledger keeps, and from after what the cluster has come to.

use stillpoint_tests::{ClusterOptions, Session, wait_until};

use crate::{
    Base, DATABASE, FORGOTTEN, Scene, assert_gap, assert_unusable, assert_whole, back_up, files,
    refusal, replaced, since, take_bookmark, told,
};

const LOST: &str = "the last backup is older than stillpoint.ledger_retention";
const FUTURE: &str = "the bookmark is from a time that this cluster has not had";

const PRUNE: &str = "SELECT stillpoint.prune()";
const SHORT: &str = "SET stillpoint.ledger_retention = '1min'";

/// Makes what is in a table of the ledger older, which is also what a clock that is set back does
/// to all that comes.
#[track_caller]
fn age(session: &mut Session, table: &str, column: &str) {
    session
        .exec(&format!("UPDATE stillpoint.{table} SET {column} = {column} - interval '2 minutes'"));
}

#[test]
fn a_bookmark_that_is_older_than_what_is_kept_is_known_no_more() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.session.exec("TRUNCATE t");
    age(&mut scene.session, "invalidation", "recorded_at");
    age(&mut scene.session, "bookmark", "taken_at");
    scene.session.exec(SHORT);
    assert_eq!(scene.session.number(PRUNE), 4);
    assert_gap(&scene.cluster, &mut scene.session, &base, FORGOTTEN, LOST);
}

#[test]
fn a_bookmark_goes_when_it_is_older_than_what_is_kept_though_no_row_goes() {
    let mut scene = Scene::new();
    let base = scene.base();
    age(&mut scene.session, "bookmark", "taken_at");
    let young = take_bookmark(&mut scene.session);
    scene.session.exec("TRUNCATE t");
    scene.session.exec(SHORT);
    assert_eq!(scene.session.number(PRUNE), 0);
    let expected = replaced(&base.files, &files(&mut scene.session));
    assert_eq!(told(&mut scene.session, &since(&young), &base.files), expected);
    assert_gap(&scene.cluster, &mut scene.session, &base, FORGOTTEN, LOST);
}

#[test]
fn a_bookmark_goes_with_a_row_that_it_needs_whatever_the_clock_says_of_both() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.session.exec("TRUNCATE t");
    // As if the clock had been set back in between.
    age(&mut scene.session, "invalidation", "recorded_at");
    scene.session.exec(SHORT);
    assert_eq!(scene.session.number(PRUNE), 4);
    assert_gap(&scene.cluster, &mut scene.session, &base, FORGOTTEN, LOST);
}

#[test]
fn a_bookmark_goes_with_the_one_row_that_it_needs_of_many() {
    let mut scene = Scene::new();
    let base = scene.base();
    scene.session.exec("TRUNCATE u");
    scene.session.exec(
        "UPDATE stillpoint.invalidation SET recorded_at = recorded_at - interval '1 hour'
          WHERE finished_xid = (SELECT max(finished_xid) FROM stillpoint.invalidation)
            AND relation = 'u_pkey'::regclass",
    );
    scene.session.exec(SHORT);
    assert_eq!(scene.session.number(PRUNE), 1);
    assert_gap(&scene.cluster, &mut scene.session, &base, FORGOTTEN, LOST);
}

#[test]
fn of_two_bookmarks_the_one_that_needs_no_row_that_goes_stays() {
    let mut scene = Scene::new();
    let older = take_bookmark(&mut scene.session);
    scene.session.exec("TRUNCATE t");
    let base = scene.base();
    age(&mut scene.session, "invalidation", "recorded_at");
    scene.session.exec("TRUNCATE t");
    scene.session.exec(SHORT);
    assert_eq!(scene.session.number(PRUNE), 4);
    assert_unusable(&scene.refusal(&since(&older)), FORGOTTEN);
    scene.assert_whole(&base);
}

#[test]
fn a_bookmark_without_a_consumer_keeps_what_the_consumers_have_passed() {
    let mut scene = Scene::new();
    let base = Base { files: files(&mut scene.session), ..scene.base() };
    scene.session.exec("TRUNCATE t");
    for _ in 0..3 {
        let backup = back_up(&mut scene.session);
        assert!(backup.complete, "{backup:?}");
        let _ = scene.session.number(PRUNE);
    }
    let expected = replaced(&base.files, &files(&mut scene.session));
    assert_eq!(told(&mut scene.session, &since(&base.bookmark), &base.files), expected);
}

#[test]
fn a_copy_from_before_the_bookmark_does_not_know_it() {
    let mut scene = Scene::new();
    let earlier = scene.base();
    scene.cluster.stop();
    let mut copy = scene.cluster.copy();
    scene.start();
    const MUCH: &str = "CREATE TABLE much AS SELECT i FROM generate_series(1, 10000) AS i";
    scene.session.exec(MUCH);
    let base = scene.base();
    scene.session.exec("TRUNCATE t");

    copy.start_server();
    let mut session = copy.session(DATABASE);
    assert_unusable(&refusal(&copy, &mut session, &since(&base.bookmark)), FUTURE);
    assert_unusable(&refusal(&copy, &mut session, &since(&base.backup)), FUTURE);
    // The copy comes to where the original was, on another way.
    session.exec(MUCH);
    session.exec("INSERT INTO much SELECT * FROM much");
    assert_unusable(&refusal(&copy, &mut session, &since(&base.bookmark)), FORGOTTEN);
    // Its own backups are based on what it has.
    assert_whole(&mut session, &earlier);
    drop(session);
}

#[test]
fn a_cluster_that_was_recovered_to_a_point_before_the_bookmark_does_not_know_it() {
    let mut scene = Scene::with(
        ClusterOptions::default()
            .setting("archive_mode = on")
            .setting("archive_command = 'cp %p ../%f'"),
    );
    let backup = scene.cluster.base_backup();
    let earlier = scene.base();
    scene.session.exec("TRUNCATE t");
    let _ = scene.session.rows("SELECT pg_create_restore_point('before')");
    let base = scene.base();
    let segment = scene.session.text("SELECT pg_walfile_name(pg_switch_wal())");
    let archived = format!("SELECT last_archived_wal >= '{segment}' FROM pg_stat_archiver");
    wait_until(&mut scene.session, &archived);

    let mut recovered = backup;
    for setting in [
        "archive_mode = off",
        &format!("restore_command = 'cp {}/%f %p'", scene.cluster.host().display()),
        "recovery_target_name = 'before'",
        "recovery_target_action = 'promote'",
    ] {
        recovered.append_setting(setting);
    }
    recovered.put_file("recovery.signal", "");
    recovered.start_server();
    let mut session = recovered.session(DATABASE);
    wait_until(&mut session, "SELECT NOT pg_is_in_recovery()");
    assert_eq!(session.number("SELECT count(*) FROM t"), 0);
    assert_unusable(&refusal(&recovered, &mut session, &since(&base.bookmark)), FUTURE);
    // One that it has come to, it knows; but it is another data directory.
    assert_gap(&recovered, &mut session, &earlier, crate::INTERRUPTED, crate::INTERRUPTED);
    session.exec("CREATE TABLE many AS SELECT i FROM generate_series(1, 10000) AS i");
    assert_unusable(&refusal(&recovered, &mut session, &since(&base.bookmark)), FORGOTTEN);
    drop(session);
}
