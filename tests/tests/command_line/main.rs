//! The command as scripts and their authors meet it: words, exit codes, signals, secrets.

mod connection;
mod failures;
mod output;
mod secrets;
mod signals;
mod usage;

use std::path::{Path, PathBuf};

use stillpoint_tests::{Cluster, Session};
use tempfile::TempDir;

/// A cluster with the database `db`, which has a table of ten rows, and a place for archives.
fn start() -> (Cluster, TempDir) {
    let cluster = Cluster::start();
    cluster.create_database("db");
    cluster.session("db").exec("CREATE TABLE t AS SELECT generate_series(1, 10) AS id");
    (cluster, tempfile::tempdir().expect("a temporary directory"))
}

/// Stops every export of `db` in the middle of a table, until [`let_exports_go`].
///
/// A configuration table is read by a query of the extension's; this one's waits for an advisory
/// lock at its last row, when there is something to be written already.
fn hold_up_exports(session: &mut Session) {
    session.exec(
        "CREATE EXTENSION file_fdw; \
         CREATE TABLE waits AS SELECT i AS id, repeat('x', 1000) AS word \
                                 FROM generate_series(1, 5000) AS i; \
         ALTER EXTENSION file_fdw ADD TABLE waits; \
         UPDATE pg_extension SET extconfig = ARRAY['waits'::regclass::oid], extcondition = ARRAY[ \
             'WHERE id < 5000 OR pg_catalog.pg_advisory_xact_lock_shared(42)::text = '''''] \
          WHERE extname = 'file_fdw'",
    );
    hold_up_exports_again(session);
}

fn hold_up_exports_again(session: &mut Session) {
    session.exec("SELECT pg_advisory_lock(42)");
}

fn let_exports_go(session: &mut Session) {
    session.exec("SELECT pg_advisory_unlock(42)");
}

fn partial(archive: &Path) -> PathBuf {
    archive.with_extension("partial")
}

#[track_caller]
fn assert_nothing_left(archive: &Path) {
    assert!(!archive.exists(), "{} is there", archive.display());
    assert!(!partial(archive).exists(), "{} is there", partial(archive).display());
}

/// A directory with a `pg_dump` of the test's own in it.
fn fake_pg_dump(directory: &Path, script: &str) -> PathBuf {
    let bindir = directory.join("bin");
    std::fs::create_dir_all(&bindir).expect("a directory");
    let text = directory.join("script");
    std::fs::write(&text, format!("#!/bin/sh\n{script}\n")).expect("a script");
    // Copied by another process: a program that this one has open for writing, and with it
    // every child that is started just now, cannot be executed.
    let mut install = std::process::Command::new("install");
    let status = install.args(["-m", "755"]).args([&text, &bindir.join("pg_dump")]).status();
    assert!(status.expect("install runs").success());
    bindir
}
