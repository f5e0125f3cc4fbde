//! SIGINT and SIGTERM end a dump at once, wherever it waits, and leave nothing behind.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use stillpoint_tests::{Running, Session, Stillpoint, wait_until};

use super::{assert_nothing_left, hold_up_exports, let_exports_go, start};

const SIGNALS: [(Signal, i32); 2] = [(Signal::INT, 130), (Signal::TERM, 143)];

/// Waits until a session of ours or of our `pg_dump` waits.
#[track_caller]
fn wait_for(observer: &mut Session, application: &str, state: &str) {
    wait_until(
        observer,
        &format!(
            "SELECT EXISTS (SELECT FROM pg_stat_activity \
                             WHERE application_name LIKE '{application}%' AND {state})"
        ),
    );
}

/// Sends the signal; what waits is still held up when all of the dump has to be gone.
#[track_caller]
fn assert_ends(
    dump: Running,
    (signal, code): (Signal, i32),
    observer: &mut Session,
    archive: &Path,
) {
    let pid = i32::try_from(dump.id()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("the dump runs");
    let finished = dump.wait();
    finished.assert_exit(code);
    assert_eq!(
        finished.stderr,
        format!("stillpoint: error: interrupted by signal {}; nothing was kept\n", code - 128)
    );
    assert_eq!(finished.stdout, "", "{}", finished.scene());
    assert_nothing_left(archive);
    wait_until(
        observer,
        "SELECT NOT EXISTS (SELECT FROM pg_stat_activity \
                             WHERE application_name LIKE 'stillpoint%' \
                                OR application_name LIKE 'pg_dump%')",
    );
    assert!(!is_written_to(archive), "a pg_dump is left");
    // It may have been about to write when its archive was removed.
    assert_nothing_left(archive);
}

/// Whether a process still runs that was told to write to the archive.
fn is_written_to(archive: &Path) -> bool {
    let name = archive.to_string_lossy().into_owned();
    std::fs::read_dir("/proc").expect("/proc can be read").flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&name)
    })
}

#[test]
fn a_signal_ends_a_dump_whose_pg_dump_waits_for_a_lock() {
    let (cluster, directory) = start();
    cluster.allow_cancelled_statements();
    let archive = directory.path().join("archive");
    let mut holder = cluster.session("db");
    let mut observer = cluster.session("db");
    holder.exec("BEGIN; LOCK TABLE t");
    for signal in SIGNALS {
        let dump = Stillpoint::dump(&cluster, "db", &archive).spawn();
        wait_for(&mut observer, "pg_dump", "wait_event_type = 'Lock'");
        assert_ends(dump, signal, &mut observer, &archive);
    }
}

#[test]
fn a_signal_ends_a_dump_whose_worker_waits_for_a_lock() {
    let (cluster, directory) = start();
    cluster.allow_cancelled_statements();
    let archive = directory.path().join("archive");
    let mut observer = cluster.session("db");
    for signal in SIGNALS {
        let mut holder = cluster.session("db");
        holder.exec("BEGIN; LOCK TABLE t");
        let dump = Stillpoint::dump(&cluster, "db", &archive).spawn();
        wait_for(&mut observer, "pg_dump", "wait_event_type = 'Lock'");
        // Behind pg_dump, and before the worker.
        let next = cluster.session("db").start("BEGIN; LOCK TABLE t");
        wait_until(
            &mut observer,
            &format!("SELECT cardinality(pg_blocking_pids({})) > 0", next.pid()),
        );
        holder.exec("COMMIT");
        let _holder = next.finish();
        wait_for(&mut observer, "stillpoint", "wait_event_type = 'Lock'");
        assert_ends(dump, signal, &mut observer, &archive);
    }
}

#[test]
fn a_signal_ends_a_dump_in_the_middle_of_its_export() {
    let (cluster, directory) = start();
    cluster.allow_cancelled_statements();
    let archive = directory.path().join("archive");
    let mut observer = cluster.session("db");
    hold_up_exports(&mut observer);
    for signal in SIGNALS {
        let dump = Stillpoint::dump(&cluster, "db", &archive).args(["-j2", "-Z", "none"]).spawn();
        wait_for(&mut observer, "stillpoint", "wait_event = 'advisory'");
        assert_ends(dump, signal, &mut observer, &archive);
    }
    let_exports_go(&mut observer);
    Stillpoint::dump(&cluster, "db", &archive).run().assert_exit(0);
}

#[test]
fn a_signal_ends_a_dump_whose_export_is_done_and_whose_pg_dump_is_not() {
    let (cluster, directory) = start();
    cluster.allow_cancelled_statements();
    let archive = directory.path().join("archive");
    let mut holder = cluster.session("db");
    let mut observer = cluster.session("db");
    holder.exec("CREATE VIEW v AS SELECT 1 AS one");
    // For a second worker, whose session is not asked for anything after its table.
    holder.exec("CREATE TABLE second AS SELECT 1 AS id");
    holder.exec("BEGIN; LOCK TABLE v");
    for signal in SIGNALS {
        let dump = Stillpoint::dump(&cluster, "db", &archive).arg("-j2").spawn();
        wait_for(&mut observer, "pg_dump", "wait_event_type = 'Lock'");
        wait_for(&mut observer, "stillpoint", "state = 'idle in transaction' AND query ~ '^COPY'");
        assert_ends(dump, signal, &mut observer, &archive);
    }
}

#[test]
fn a_signal_ends_a_dump_whose_workers_make_one_file_after_the_other() {
    let (cluster, directory) = start();
    cluster.allow_cancelled_statements();
    let archive = directory.path().join("archive");
    let mut observer = cluster.session("db");
    for hundred in 0..20 {
        observer.exec(&format!(
            "DO $$ BEGIN FOR i IN 1..100 LOOP \
             EXECUTE format('CREATE TABLE small_%s_%s (id int)', {hundred}, i); \
             END LOOP; END $$"
        ));
    }
    for signal in SIGNALS {
        let dump = Stillpoint::dump(&cluster, "db", &archive).args(["-j2", "-Z", "none"]).spawn();
        wait_for(&mut observer, "stillpoint", "query LIKE 'COPY \"public\".\"small%'");
        assert_ends(dump, signal, &mut observer, &archive);
        let left = std::fs::read_dir(directory.path()).expect("a directory").count();
        assert_eq!(left, 0, "something is left beside {}", archive.display());
    }
}
