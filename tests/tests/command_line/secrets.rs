//! A password is nowhere to be seen.

use std::fs;
use std::path::Path;

use stillpoint_tests::{Cluster, Finished, Stillpoint, wait_until};

use super::start;

const PASSWORD: &str = "s3cr3t Ünd=lang";
const IN_URI: &str = "s3cr3t%20%C3%9Cnd%3Dlang";

/// What must not be found: the password as it is, and as a connection string writes it.
const SECRETS: [&str; 2] = ["s3cr3t", IN_URI];

fn secure(cluster: &Cluster) {
    let mut session = cluster.session("postgres");
    session.exec(&format!("CREATE ROLE alice SUPERUSER LOGIN PASSWORD '{PASSWORD}'"));
    cluster.prepend_hba("local all alice scram-sha-256");
    session.exec("SELECT pg_reload_conf()");
    // The postmaster reloads when it comes to it.
    wait_until(
        &mut session,
        "SELECT EXISTS (SELECT FROM pg_hba_file_rules WHERE user_name = '{alice}') \
                AND pg_conf_load_time() > pg_postmaster_start_time()",
    );
}

#[track_caller]
fn assert_no_secret(text: &str, what: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "the password is in {what}:\n{text}");
    }
}

#[track_caller]
fn assert_says_no_secret(finished: &Finished) {
    assert_no_secret(&finished.stdout, "standard output");
    assert_no_secret(&finished.stderr, "standard error");
}

/// The command lines of a process's children.
fn children(parent: u32) -> Vec<String> {
    let is_child = |status: &Path| {
        let text = fs::read_to_string(status).unwrap_or_default();
        text.lines().any(|line| line == format!("PPid:\t{parent}"))
    };
    fs::read_dir("/proc")
        .expect("/proc can be read")
        .flatten()
        .filter(|entry| is_child(&entry.path().join("status")))
        .map(|entry| {
            let bytes = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        })
        .collect()
}

#[test]
fn a_password_is_in_no_process_list_message_report_or_manifest() {
    let (cluster, directory) = start();
    secure(&cluster);
    let mut holder = cluster.session("db");
    let mut observer = cluster.session("db");
    let (host, port) = (cluster.host().display().to_string(), cluster.port());
    let uri = format!("postgresql://alice:{IN_URI}@/db?host={host}&port={port}");
    let conninfo = format!("host='{host}' port={port} user=alice dbname=db password='{PASSWORD}'");
    for (number, (database, variable)) in
        [("db", true), (&uri, false), (&conninfo, false)].into_iter().enumerate()
    {
        let archive = directory.path().join(number.to_string());
        let mut dump = Stillpoint::dump(&cluster, database, &archive)
            .args(["-U", "alice", "-j2", "--report", "json"]);
        if variable {
            dump = dump.env("PGPASSWORD", PASSWORD);
        }
        holder.exec("BEGIN; LOCK TABLE t");
        let dump = dump.spawn();
        let waiting = format!(
            "SELECT EXISTS (SELECT FROM pg_stat_activity \
                             WHERE {} = ANY (pg_blocking_pids(pid)) AND usename = 'alice')",
            holder.pid()
        );
        wait_until(&mut observer, &waiting);
        let pg_dump = children(dump.id());
        assert!(
            pg_dump.iter().any(|line| line.contains("pg_dump") && line.contains("user='alice'")),
            "{pg_dump:?}"
        );
        assert_no_secret(&pg_dump.join("\n"), "a process list");
        holder.exec("COMMIT");
        let finished = dump.wait();
        finished.assert_exit(0);
        assert_says_no_secret(&finished);
        for entry in fs::read_dir(&archive).expect("the archive is a directory").flatten() {
            let bytes = fs::read(entry.path()).expect("a file");
            assert_no_secret(&String::from_utf8_lossy(&bytes), "the archive");
        }
    }
}

#[test]
fn a_password_is_in_no_error() {
    let (cluster, directory) = start();
    secure(&cluster);
    cluster.allow_log("password authentication failed");
    let archive = directory.path().join("archive");
    let (host, port) = (cluster.host().display().to_string(), cluster.port());
    let dump = |database: &str| {
        Stillpoint::dump(&cluster, database, &archive).args(["-U", "alice", "--report", "json"])
    };
    let server = format!("server on socket \"{host}/.s.PGSQL.{port}\"");
    let finished = dump("db").env("PGPASSWORD", "s3cr3t, but wrong").run();
    finished.assert_exit(1);
    assert_eq!(
        finished.stderr,
        format!(
            "stillpoint: error: could not connect: {server}: FATAL: password authentication \
             failed for user \"alice\"\n"
        )
    );
    assert_says_no_secret(&finished);
    let finished = dump("db").run();
    finished.assert_exit(1).assert_stderr("password missing");

    // Connection strings that cannot be read, or lead nowhere.
    for database in [
        format!("postgresql://alice:{IN_URI}@/db?host={host}&port=x"),
        format!("postgresql://alice:{IN_URI}@/db?host={host}&nosuch=1"),
        format!("postgresql://alice:{IN_URI}%ZZ@/db?host={host}&port=1"),
        format!("postgresql://alice:{IN_URI}@[::/db"),
        format!("postgresql://alice:{IN_URI}@127.0.0.1:1/db"),
        format!("host='{host}' password='{PASSWORD}"),
        "password=s3cr3t host".to_owned(),
        "host=x s3cr3t=y".replace("s3cr3t", "nosuch") + " password=s3cr3t",
    ] {
        let finished = dump(&database).run();
        assert!(matches!(finished.code(), Some(1 | 64)), "{}", finished.scene());
        assert_says_no_secret(&finished);
    }
}
