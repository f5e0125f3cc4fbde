//! `begin` and `end`, and a command that runs in between.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use stillpoint_tests::{Running, Stillpoint, wait_until};

use crate::{Scene, assert_one_line, assert_refused};

/// An advisory lock by which a test holds a command up.
const LOCK: &str = "SELECT pg_advisory_lock(42)";

/// `begin NAME -- COMMAND`, whose command finds the cluster by its environment.
fn begin(scene: &Scene, consumer: &str, command: &[&str]) -> Stillpoint {
    scene
        .ledger("begin")
        .env("PGHOST", scene.cluster.host())
        .env("PGPORT", scene.cluster.port().to_string())
        .env("PGUSER", "postgres")
        .env("PGDATABASE", crate::DATABASE)
        .args([consumer, "--"])
        .args(command)
}

/// A backup whose command waits for the lock, which the scene's session holds.
#[track_caller]
fn begin_held_up(scene: &mut Scene, consumer: &str) -> Running {
    scene.session.exec(LOCK);
    let running = begin(scene, consumer, &["psql", "-XqAtc", LOCK]).spawn();
    wait_until(
        &mut scene.session,
        "SELECT EXISTS (SELECT FROM pg_stat_activity \
                         WHERE application_name = 'psql' AND wait_event = 'advisory')",
    );
    running
}

fn send(signal: Signal, running: &Running) {
    let pid = i32::try_from(running.id()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("it runs");
}

/// Whether a session holds the consumer's lock.
const IS_RUNNING: &str =
    "SELECT running_pid IS NOT NULL FROM stillpoint.consumers WHERE name = 'nightly'";
const IS_OVER: &str = "SELECT running_pid IS NULL FROM stillpoint.consumers WHERE name = 'nightly'";

#[test]
fn a_backup_begins_and_ends_in_two_runs() {
    let mut scene = Scene::new();
    assert_one_line(
        &scene.told("register", &["nightly"]),
        "registered consumer \"nightly\" in database \"postgres\"",
    );
    // The first one has nothing to build on.
    let first = scene.told("begin", &["nightly", "--format", "json"]);
    first.assert_stderr("warning: consumer \"nightly\" cannot build on its last backup: ");
    first.assert_stderr("; take a full backup\n");
    let lines: Vec<&str> = first.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", first.scene());
    assert_eq!(
        lines[1],
        "stillpoint: began a backup of consumer \"nightly\" in database \"postgres\""
    );
    let report = first.report();
    assert_eq!((&report["base"], &report["complete"]), (&Value::Null, &json!(false)));
    assert!(report["reason"].is_string());
    assert!(scene.session.yes(IS_OVER), "its session has ended");
    let base = report["bookmark"].as_str().expect("a bookmark");
    assert_one_line(
        &scene.told("end", &["nightly", base]),
        "ended the backup of consumer \"nightly\" in database \"postgres\"",
    );
    assert_eq!(scene.base_of("nightly").as_deref(), Some(base));

    let second = scene.told("begin", &["nightly"]);
    assert_one_line(&second, "began a backup of consumer \"nightly\" in database \"postgres\"");
    let lines: Vec<&str> = second.stdout.lines().collect();
    assert_eq!(lines[0], format!("base:     {base}"));
    let bookmark = lines[1].strip_prefix("bookmark: ").expect("a bookmark");
    assert_eq!(lines[2..], ["complete: yes", "reason:   none"]);

    // What has begun since takes its place.
    scene.told("begin", &["nightly"]);
    scene.cluster.allow_log("bookmark");
    let late = scene.ledger("end").args(["nightly", bookmark]).run();
    late.assert_exit(1).assert_stderr("error: could not end the backup: ");
    late.assert_stderr("hint: ");
    assert_eq!(scene.base_of("nightly").as_deref(), Some(base));
}

#[test]
fn a_consumers_last_backup_is_a_base() {
    let mut scene = Scene::new();
    let base = scene.consumer_with_backup("nightly");
    scene.session.exec("TRUNCATE t");
    let report = scene.told("since", &["--consumer", "nightly", "--format", "json"]).report();
    assert_eq!((&report["consumer"], &report["base"]), (&json!("nightly"), &json!(base)));
    assert_eq!(report["files"].as_array().map(Vec::len), Some(2));
    let paths = |arguments: &[&str]| scene.told("since", arguments).stdout;
    let by_name = paths(&["--consumer", "nightly", "--format", "paths"]);
    assert_eq!(by_name, paths(&[&base, "--format", "paths"]));
}

#[test]
fn a_command_finds_the_backup_in_its_environment_and_ends_it_by_its_success() {
    let mut scene = Scene::new();
    let base = scene.consumer_with_backup("nightly");
    let script = "printf '%s\\n' \"$STILLPOINT_CONSUMER\" \"$STILLPOINT_BASE\" \
                  \"$STILLPOINT_COMPLETE\" \"$STILLPOINT_REASON\" \"$STILLPOINT_BOOKMARK\"; \
                  psql -XAtc 'SELECT running_pid IS NOT NULL FROM stillpoint.consumers'";
    let finished = begin(&scene, "nightly", &["sh", "-c", script]).run();
    finished.assert_exit(0);
    assert_one_line(&finished, "ended the backup of consumer \"nightly\" in database \"postgres\"");
    let lines: Vec<&str> = finished.stdout.lines().collect();
    assert_eq!(lines[..4], ["nightly", &base, "true", ""], "{}", finished.scene());
    assert_eq!(lines[5], "t", "the lock is held while it runs");
    assert_eq!(scene.base_of("nightly").as_deref(), Some(lines[4]));
    assert!(scene.session.yes(IS_OVER));

    // A first one has no base.
    scene.told("register", &["new"]);
    let script = "test -z \"$STILLPOINT_BASE\" && test \"$STILLPOINT_COMPLETE\" = false && \
                  test -n \"$STILLPOINT_REASON\" && test -n \"$STILLPOINT_BOOKMARK\"";
    let finished = begin(&scene, "new", &["sh", "-c", script]).run();
    finished.assert_exit(0).assert_stderr("; take a full backup\n");
    assert!(scene.base_of("new").is_some());
}

#[test]
fn a_command_that_fails_gives_its_status_and_ends_no_backup() {
    let mut scene = Scene::new();
    let base = scene.consumer_with_backup("nightly");
    let not_ended = "the backup of consumer \"nightly\" is not ended";
    for (command, code, message) in [
        (&["sh", "-c", "exit 3"][..], 3, "error: \"sh\" failed: exit status: 3; "),
        (&["sh", "-c", "kill -9 $$"], 137, "error: \"sh\" failed: signal: 9 (SIGKILL); "),
        (
            &["nosuch"],
            127,
            "error: could not execute \"nosuch\": No such file or directory (os error 2); ",
        ),
        (
            &["/etc/passwd"],
            126,
            "error: could not execute \"/etc/passwd\": Permission denied (os error 13); ",
        ),
    ] {
        let finished = begin(&scene, "nightly", command).run();
        finished.assert_exit(code);
        assert_one_line(&finished, &format!("{message}{not_ended}"));
        assert_eq!(scene.base_of("nightly").as_ref(), Some(&base));
        assert!(scene.session.yes(IS_OVER));
    }
    // Ours has a status that is none of the command's.
    scene.cluster.allow_log("consumer \"nosuch\" does not exist");
    begin(&scene, "nosuch", &["true"]).run().assert_exit(125);
    let unreachable = Stillpoint::unconnected(&scene.cluster, "ledger").args([
        "begin",
        "nightly",
        "-h",
        "/nonexistent",
        "--",
        "true",
    ]);
    unreachable.run().assert_exit(125).assert_stderr("could not connect");
}

#[test]
fn a_second_backup_of_a_consumer_is_refused_while_a_command_runs() {
    let mut scene = Scene::new();
    scene.consumer_with_backup("nightly");
    let running = begin_held_up(&mut scene, "nightly");
    let pid = scene.session.number("SELECT running_pid FROM stillpoint.consumers");
    scene.cluster.allow_log("a backup of consumer \"nightly\" is already running");
    let second = scene.ledger("begin").arg("nightly").run();
    second.assert_exit(1);
    let message = format!(
        "error: could not begin a backup: a backup of consumer \"nightly\" is already running (It \
         runs in the session of process {pid}.)"
    );
    assert_one_line(&second, &message);
    assert!(scene.told("consumers", &[]).stdout.contains(&pid.to_string()));
    scene.session.exec("SELECT pg_advisory_unlock(42)");
    running.wait().assert_exit(0);
    assert!(scene.session.yes(IS_OVER));
    scene.told("begin", &["nightly"]);
}

#[test]
fn a_signal_ends_the_command_and_no_backup() {
    let mut scene = Scene::new();
    scene.cluster.allow_cancelled_statements();
    let base = scene.consumer_with_backup("nightly");
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 1)] {
        let running = begin_held_up(&mut scene, "nightly");
        send(signal, &running);
        let finished = running.wait();
        finished.assert_exit(128 + number);
        assert_one_line(
            &finished,
            &format!(
                "error: interrupted by signal {number}; the backup of consumer \"nightly\" is not \
                 ended"
            ),
        );
        scene.session.exec("SELECT pg_advisory_unlock(42)");
        wait_until(&mut scene.session, IS_OVER);
        assert_eq!(scene.base_of("nightly").as_ref(), Some(&base));
    }
}

#[test]
fn the_lock_is_held_until_a_command_that_was_told_to_end_has_ended() {
    let mut scene = Scene::new();
    let base = scene.consumer_with_backup("nightly");
    scene.session.exec(LOCK);
    // It cleans up first, and says that all is well.
    let script = format!(
        "trap 'psql -XqAtc \"{LOCK}\"; exit 0' TERM; \
         psql -XqAtc 'SET application_name = ready; SELECT pg_advisory_lock_shared(42)' & wait"
    );
    let running = begin(&scene, "nightly", &["sh", "-c", &script]).spawn();
    let waits = |name: &str| {
        format!(
            "SELECT EXISTS (SELECT FROM pg_stat_activity \
                             WHERE application_name = '{name}' AND wait_event = 'advisory')"
        )
    };
    wait_until(&mut scene.session, &waits("ready"));
    send(Signal::TERM, &running);
    wait_until(&mut scene.session, &waits("psql"));
    assert!(scene.session.yes(IS_RUNNING));
    scene.session.exec("SELECT pg_advisory_unlock(42)");
    let finished = running.wait();
    finished.assert_exit(143).assert_stderr("is not ended");
    assert_eq!(scene.base_of("nightly").as_ref(), Some(&base));
}

#[test]
fn a_session_that_is_lost_meanwhile_is_told_with_what_still_ends_the_backup() {
    let mut scene = Scene::new();
    scene.consumer_with_backup("nightly");
    let kill = "SELECT pg_terminate_backend(running_pid, 60000) FROM stillpoint.consumers";
    let finished = begin(&scene, "nightly", &["psql", "-XqAtc", kill]).run();
    finished.assert_exit(125);
    finished.assert_stderr(
        "error: could not end the backup: terminating connection due to administrator command\n",
    );
    let (_, words) = finished.stderr.split_once("stillpoint ledger end ").expect("a hint");
    let bookmark = words.trim_end().strip_prefix("nightly '").and_then(|it| it.strip_suffix('\''));
    let bookmark = bookmark.expect("a bookmark");
    scene.told("end", &["nightly", bookmark]);
    assert_eq!(scene.base_of("nightly").as_deref(), Some(bookmark));
}

#[test]
fn a_gap_is_warned_of_with_its_reason() {
    let mut scene = Scene::new();
    let base = scene.consumer_with_backup("nightly");
    scene.session.exec("SET stillpoint.enabled = off");
    scene.session.exec("TRUNCATE t");
    scene.session.exec("RESET stillpoint.enabled");
    let finished = scene.told("begin", &["nightly", "--format", "json"]);
    let report = finished.report();
    assert_eq!((&report["base"], &report["complete"]), (&json!(base), &json!(false)));
    let reason = report["reason"].as_str().expect("a reason");
    let gap = reason.strip_suffix("; take a full backup").expect("what to do");
    finished.assert_stderr(&format!(
        "warning: consumer \"nightly\" cannot build on its last backup: {reason}\n"
    ));
    scene.cluster.allow_log(gap);
    let since = scene.ledger("since").args(["--consumer", "nightly"]).run();
    assert!(since.stderr.contains(gap), "{}", since.scene());
    since.assert_exit(1).assert_stderr("hint: Take a full backup.\n");
}

#[test]
fn a_lost_consumer_is_told_to_take_a_full_backup() {
    let mut scene = Scene::new();
    scene.consumer_with_backup("nightly");
    scene.session.exec("UPDATE stillpoint.consumer SET lost = true");
    assert_refused(
        &scene.ledger("since").args(["--consumer", "nightly"]).run(),
        1,
        "consumer \"nightly\" is lost: its last backup is older than stillpoint.ledger_retention",
        "Take a full backup.",
    );
    scene.told("register", &["new"]);
    assert_refused(
        &scene.ledger("since").args(["--consumer", "new"]).run(),
        1,
        "consumer \"new\" has no backup yet",
        "Take a full backup.",
    );
    assert_refused(
        &scene.ledger("since").args(["--consumer", "nosuch"]).run(),
        1,
        "consumer \"nosuch\" does not exist",
        "\"stillpoint ledger register\" makes one known.",
    );
}
