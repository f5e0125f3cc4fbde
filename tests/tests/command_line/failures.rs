//! What can go wrong on the way to an archive, and that nothing of it is left then.

use std::fs;
use std::process::Command;

use stillpoint_tests::{Stillpoint, client_binary, wait_until};

use super::{
    assert_nothing_left, fake_pg_dump, hold_up_exports, hold_up_exports_again, let_exports_go,
    partial, start,
};

#[test]
fn an_archive_that_exists_is_never_touched() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    for make in [
        |path: &std::path::Path| fs::create_dir(path).expect("a directory"),
        |path: &std::path::Path| fs::write(path, "a file").expect("a file"),
        |path: &std::path::Path| {
            std::os::unix::fs::symlink("/nonexistent", path).expect("a link to nothing");
        },
    ] {
        make(&archive);
        let finished = Stillpoint::dump(&cluster, "db", &archive).run();
        finished.assert_exit(1);
        assert_eq!(
            finished.stderr,
            format!(
                "stillpoint: error: \"{}\" exists already\n\
                 stillpoint: hint: Choose another name, or remove it first.\n",
                archive.display()
            )
        );
        assert!(archive.symlink_metadata().is_ok() && !partial(&archive).exists());
        let _ = fs::remove_dir(&archive);
        let _ = fs::remove_file(&archive);
    }
}

#[test]
fn an_unfinished_archive_is_somebody_elses() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    fs::create_dir(partial(&archive)).expect("a directory");
    fs::write(partial(&archive).join("toc.dat"), "precious").expect("a file");
    let finished = Stillpoint::dump(&cluster, "db", &archive).run();
    finished.assert_exit(1);
    assert_eq!(
        finished.stderr,
        format!(
            "stillpoint: error: unfinished archive \"{}\" exists\n\
             stillpoint: hint: Another dump is writing it, or one that was killed has left it. In \
             the second case, remove it.\n",
            partial(&archive).display()
        )
    );
    let kept = fs::read_to_string(partial(&archive).join("toc.dat"));
    assert_eq!(kept.expect("the file is there"), "precious");
}

#[test]
fn a_place_where_no_archive_can_be_is_named() {
    let (cluster, directory) = start();
    let file = directory.path().join("file");
    fs::write(&file, "").expect("a file");
    for (parent, reason) in [
        (directory.path().join("nowhere"), "No such file or directory (os error 2)"),
        (file, "Not a directory (os error 20)"),
        // Nobody can write there, not even root.
        ("/proc".into(), "No such file or directory (os error 2)"),
    ] {
        let archive = parent.join("archive");
        let finished = Stillpoint::dump(&cluster, "db", &archive).run();
        finished.assert_exit(1);
        assert_eq!(
            finished.stderr,
            format!(
                "stillpoint: error: could not create directory \"{}\": {reason}\n",
                partial(&archive).display()
            )
        );
    }
}

#[test]
fn without_a_fitting_pg_dump_there_is_no_dump() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    let major =
        cluster.session("db").number("SELECT current_setting('server_version_num')::int / 10000");
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).expect("a directory");
    let finished = Stillpoint::dump(&cluster, "db", &archive).arg("--bindir").arg(&empty).run();
    finished.assert_exit(1);
    assert_eq!(
        finished.stderr,
        format!(
            "stillpoint: error: could not find program \"pg_dump\" in directory \"{}\"\n\
             stillpoint: hint: --bindir must name a directory that holds the PostgreSQL client \
             programs.\n",
            empty.display()
        )
    );
    let bindir = fake_pg_dump(directory.path(), "echo 'pg_dump (PostgreSQL) 12.9'");
    let program = bindir.join("pg_dump");
    let finished = Stillpoint::dump(&cluster, "db", &archive).arg("--bindir").arg(&bindir).run();
    finished.assert_exit(1);
    assert_eq!(
        finished.stderr,
        format!(
            "stillpoint: error: \"{}\" is of version 12, and the server of version {major}\n\
             stillpoint: hint: Name with --bindir the directory of client programs of version \
             {major} or newer.\n",
            program.display()
        )
    );
    assert_nothing_left(&archive);
}

#[test]
fn a_pg_dump_that_fails_for_its_own_reasons_ends_the_dump_with_its_words() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    for (script, message) in [
        ("echo 'pg_dump: error: out of luck' >&2; exit 1", "pg_dump: error: out of luck"),
        ("exit 3", "exit status: 3"),
        ("kill -9 $$", "signal: 9 (SIGKILL)"),
    ] {
        let script = format!(
            "[ \"$1\" = --version ] && {{ echo 'pg_dump (PostgreSQL) 99.1'; exit; }}\n{script}"
        );
        let bindir = fake_pg_dump(directory.path(), &script);
        let finished =
            Stillpoint::dump(&cluster, "db", &archive).arg("--bindir").arg(&bindir).run();
        finished.assert_exit(1);
        assert_eq!(
            finished.stderr,
            format!("stillpoint: error: could not dump the definitions: {message}\n")
        );
        assert_nothing_left(&archive);
    }
}

#[test]
fn a_pg_dump_that_writes_nothing_is_not_taken_for_one_that_dumped_nothing() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    let script = "[ \"$1\" = --version ] && echo 'pg_dump (PostgreSQL) 99.1'; exit 0";
    let bindir = fake_pg_dump(directory.path(), script);
    let finished = Stillpoint::dump(&cluster, "db", &archive).arg("--bindir").arg(&bindir).run();
    finished.assert_exit(1).assert_stderr("toc.dat");
    assert_nothing_left(&archive);
}

#[test]
fn a_session_that_is_ended_during_the_export_ends_the_dump() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    let mut observer = cluster.session("db");
    hold_up_exports(&mut observer);
    // What the others read is of no use then.
    cluster.allow_cancelled_statements();
    for (jobs, which) in [("-j1", "="), ("-j2", "<>")] {
        let dump = Stillpoint::dump(&cluster, "db", &archive).arg(jobs).spawn();
        wait_until(
            &mut observer,
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'advisory')",
        );
        // The one that exports, then all others, with them the one that holds the snapshot.
        observer.exec(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
              WHERE application_name = 'stillpoint' AND wait_event {which} 'advisory'"
        ));
        let_exports_go(&mut observer);
        let finished = dump.wait();
        finished.assert_exit(1);
        assert_eq!(finished.report()["outcome"], "failed", "{}", finished.scene());
        assert_nothing_left(&archive);
        hold_up_exports_again(&mut observer);
    }
}

#[test]
fn a_file_that_cannot_grow_ends_the_dump_at_once_and_not_when_its_table_ends() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    // The table has more than the limit before its last row, which does not come. A server that
    // was not told to stop would log that it has waited for too long.
    let mut holder = cluster.session("db");
    hold_up_exports(&mut holder);
    cluster.allow_cancelled_statements();
    let output = Command::new("sh")
        // Like a full disk, but for one process: 512 kB for a file.
        .args(["-c", "trap '' XFSZ; ulimit -f 1000; exec \"$@\"", "sh"])
        .arg(client_binary())
        .args(["dump", "-U", "postgres", "-d", "db", "-Z", "none", "--lock-timeout", "20"])
        .args(["-p", &cluster.port().to_string(), "-h"])
        .arg(cluster.host())
        .arg("--bindir")
        .arg(cluster.bindir())
        .arg("-f")
        .arg(&archive)
        .output()
        .expect("the dump runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("File too large"), "{stderr}");
    assert_nothing_left(&archive);
}
