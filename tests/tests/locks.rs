//! Locks that others hold or ask for while a dump takes its own.

use std::thread;

use stillpoint_tests::race::{Moment, Then, Window, drive};
use stillpoint_tests::{Cluster, Finished, Session, Stillpoint, restore_into, wait_until};
use tempfile::TempDir;

/// A database with an empty table and two with rows, of which `last` is the largest and hence
/// the last that a dump locks.
fn start() -> (Cluster, TempDir) {
    let cluster = Cluster::start();
    cluster.create_database("db");
    let mut session = cluster.session("db");
    session.exec("CREATE TABLE barrier (id int)");
    session.exec("CREATE TABLE t AS SELECT generate_series(1, 900) AS id");
    session.exec("CREATE TABLE last AS SELECT i, repeat('x', 500) FROM generate_series(1, 900) i");
    session.exec("ANALYZE");
    (cluster, tempfile::tempdir().expect("a temporary directory"))
}

fn outcomes(finished: &Finished) -> Vec<String> {
    let report = finished.report();
    let attempts = report["attempts"].as_array().expect("attempts are a list");
    let outcome = |attempt: &serde_json::Value| attempt["outcome"].as_str().unwrap_or("").into();
    attempts.iter().map(outcome).collect()
}

/// Waits until a worker of the dump waits for the session `holder`.
fn wait_for_worker(observer: &mut Session, holder: i32) {
    wait_until(
        observer,
        &format!(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'stillpoint' \
             AND {holder} = ANY (pg_blocking_pids(pid)))"
        ),
    );
}

#[test]
fn a_truncate_that_commits_while_the_dump_waits_for_its_lock_is_seen() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    let mut open = cluster.session("db");
    let mut observer = cluster.session("db");
    let pid = open.pid();
    let dump = Stillpoint::dump(&cluster, "db", &archive);
    let finished = thread::scope(|scope| {
        let (open, observer) = (&mut open, &mut observer);
        let mut sessions = Some((open, observer));
        drive(&cluster, "db", dump, |Moment { window, .. }| {
            if window == Window::BeforeDdl {
                return Then::NextWindow;
            }
            let (open, observer) = sessions.take().expect("there is one such window");
            open.exec("BEGIN; TRUNCATE t; INSERT INTO t VALUES (1)");
            scope.spawn(move || {
                wait_for_worker(observer, pid);
                open.exec("COMMIT");
            });
            Then::End
        })
    });
    finished.assert_exit(0);
    assert_eq!(outcomes(&finished), ["moved", "verified"], "{}", finished.scene());
    restore_into(&cluster, &archive, "restored");
    assert_eq!(cluster.session("restored").text("SELECT array_agg(id) FROM t"), "{1}");
}

#[test]
fn a_lock_that_is_never_had_ends_the_dump_which_names_who_has_it() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    cluster.allow_log("canceling statement due to statement timeout");
    cluster.allow_cancelled_statements();
    let mut open = cluster.session("db");
    let dump =
        Stillpoint::dump(&cluster, "db", &archive).args(["--attempts", "2", "--lock-timeout", "1"]);
    let finished = drive(&cluster, "db", dump, |Moment { window, .. }| {
        if window == Window::BeforeDdl {
            return Then::NextWindow;
        }
        open.exec("BEGIN; LOCK TABLE t");
        Then::End
    });
    finished.assert_exit(1);
    assert_eq!(outcomes(&finished), ["lock_timeout", "lock_timeout"], "{}", finished.scene());
    finished.assert_stderr(&open.pid().to_string()).assert_stderr("LOCK TABLE t");
    assert!(!archive.exists(), "{}", finished.scene());
    assert!(!archive.with_extension("partial").exists(), "{}", finished.scene());
}

#[test]
fn a_session_that_is_ended_while_it_waits_for_a_lock_is_told_by_what_it_was_doing() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    cluster.allow_log("terminating connection due to administrator command");
    let mut observer = cluster.session("db");
    let finished = drive(&cluster, "db", Stillpoint::dump(&cluster, "db", &archive), |moment| {
        if moment.window == Window::BeforeDdl {
            return Then::NextWindow;
        }
        observer.exec(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
              WHERE application_name = 'stillpoint' AND wait_event_type = 'Lock'",
        );
        Then::End
    });
    finished.assert_exit(1);
    // Where the server's words and the end of the connection are read at once, the driver tells
    // of the second alone.
    let told = ["terminating connection due to administrator command", "connection closed"]
        .map(|why| format!("stillpoint: error: could not lock a relation: {why}\n"));
    assert!(told.contains(&finished.stderr), "{}", finished.scene());
    assert!(!archive.with_extension("partial").exists(), "{}", finished.scene());
}

#[test]
fn a_prepared_transaction_that_has_a_lock_is_named_as_what_it_is() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    cluster.allow_log("canceling statement due to statement timeout");
    let dump =
        Stillpoint::dump(&cluster, "db", &archive).args(["--attempts", "1", "--lock-timeout", "1"]);
    let finished = drive(&cluster, "db", dump, |Moment { window, .. }| {
        if window == Window::BeforeDdl {
            return Then::NextWindow;
        }
        cluster.session("db").exec("BEGIN; LOCK TABLE t; PREPARE TRANSACTION 'forgotten'");
        Then::End
    });
    finished.assert_exit(1).assert_stderr("\"public\".\"t\": a prepared transaction");
    assert_eq!(outcomes(&finished), ["lock_timeout"], "{}", finished.scene());
}

#[test]
fn exclusive_locks_asked_for_during_the_export_wait_and_do_not_freeze_it() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    let mut holder = cluster.session("db");
    let mut observer = cluster.session("db");
    let pid = holder.pid();
    let dump = Stillpoint::dump(&cluster, "db", &archive);
    let (finished, waiting) = thread::scope(|scope| {
        let mut sessions = Some((&mut holder, &mut observer));
        let mut asking = None;
        let finished = drive(&cluster, "db", dump, |Moment { window, .. }| {
            if window == Window::BeforeDdl {
                return Then::NextWindow;
            }
            let (holder, observer) = sessions.take().expect("there is one such window");
            holder.exec("BEGIN; LOCK TABLE last");
            let cluster = &cluster;
            asking = Some(scope.spawn(move || {
                // The worker has every lock but this one. The others queue behind it before
                // it gets the last and the export begins.
                wait_for_worker(observer, pid);
                let waiting = ["barrier", "t", "last"].map(|table| {
                    let ask = format!("BEGIN; LOCK TABLE {table}; COMMIT");
                    let statement = cluster.session("db").start(&ask);
                    let pid = statement.pid();
                    wait_until(
                        observer,
                        &format!("SELECT cardinality(pg_blocking_pids({pid})) > 0"),
                    );
                    statement
                });
                holder.exec("COMMIT");
                waiting
            }));
            Then::End
        });
        (finished, asking.map(|thread| thread.join().expect("the locks were asked for")))
    });
    finished.assert_exit(0);
    assert_eq!(outcomes(&finished), ["verified"], "{}", finished.scene());
    for statement in waiting.expect("the window was met") {
        drop(statement.finish());
    }
    restore_into(&cluster, &archive, "restored");
    let mut restored = cluster.session("restored");
    assert_eq!(restored.number("SELECT count(*) FROM t"), 900);
    assert_eq!(restored.number("SELECT count(*) FROM last"), 900);
}
