//! What is printed where, and in which form.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use serde_json::Value;
use stillpoint_tests::{Stillpoint, client_binary, pg_restore};

use super::{assert_nothing_left, start};

#[test]
fn messages_can_be_json_lines() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    let json = ["--log-format", "json"];
    let finished = Stillpoint::dump(&cluster, "db", &archive).args(json).run();
    finished.assert_exit(0);
    let lines: Vec<Value> = finished
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{}", finished.scene())))
        .collect();
    assert_eq!(lines.len(), 1, "{}", finished.scene());
    assert_eq!(lines[0]["level"], "INFO");
    let message = lines[0]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("dumped database \"db\": "), "{message}");
    assert!(lines[0]["timestamp"].is_string());

    // A failure is one too, with its hint.
    let finished = Stillpoint::dump(&cluster, "db", &archive).args(json).run();
    finished.assert_exit(1);
    let line: Value = serde_json::from_str(&finished.stderr).expect("one line of JSON");
    assert_eq!(line["level"], "ERROR");
    assert_eq!(line["hint"], "Choose another name, or remove it first.");
}

#[test]
fn a_report_is_printed_for_people_or_for_programs_or_not_at_all() {
    let (cluster, directory) = start();
    let dump = |name: &str| {
        Stillpoint::new(&cluster, "db", "dump").arg("-f").arg(directory.path().join(name))
    };
    let finished = dump("none").run();
    finished.assert_exit(0);
    assert_eq!(finished.stdout, "");
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.scene());

    let finished = dump("text").args(["--report", "text"]).run();
    finished.assert_exit(0);
    let mut lines = finished.stdout.lines();
    assert_eq!(lines.next(), Some("dump of database \"db\": complete"));
    let archive = format!("archive:  {}", directory.path().join("text").display());
    assert_eq!(lines.next(), Some(archive.as_str()));
    assert_eq!(lines.next(), Some("checked:  by plain SQL over a second connection"));
    let attempt = lines.next().unwrap_or_default();
    assert!(attempt.starts_with("attempt 1: snapshot ") && attempt.ends_with(": verified"));
    assert_eq!(lines.next(), None, "{}", finished.scene());

    let finished = dump("json").args(["--report", "json"]).run();
    finished.assert_exit(0);
    assert_eq!(finished.stdout.lines().count(), 1, "{}", finished.scene());
    assert_eq!(finished.report()["outcome"], "complete");
    assert!(finished.report()["files"].is_null());

    // Of a failure, too.
    let finished = dump("json").args(["--report", "json"]).run();
    finished.assert_exit(1);
    let report = finished.report();
    assert_eq!(report["outcome"], "failed");
    assert!(report["archive"].is_null());
    assert!(report["error"].as_str().is_some_and(|error| error.ends_with("exists already")));
    let finished = dump("text").args(["--report", "text"]).run();
    finished.assert_exit(1);
    assert!(finished.stdout.contains("failed") && finished.stdout.contains("error:"));
}

#[test]
fn a_log_that_cannot_be_written_costs_no_dump() {
    let (cluster, directory) = start();
    cluster.session("db").exec(
        "CREATE MATERIALIZED VIEW m AS SELECT 1; CREATE MATERIALIZED VIEW warned AS TABLE m; \
         REFRESH MATERIALIZED VIEW m WITH NO DATA",
    );
    let archive = directory.path().join("archive");
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full is there");
    let dump = |stdout| {
        let mut dump = Command::new(client_binary());
        dump.args(["dump", "-U", "postgres", "-d", "db", "-p", &cluster.port().to_string(), "-f"]);
        dump.arg(&archive).arg("-h").arg(cluster.host()).args(["--report", "json"]);
        dump.arg("--bindir").arg(cluster.bindir());
        dump.stderr(full()).stdout(stdout).status().expect("the dump runs").code()
    };
    assert_eq!(dump(Stdio::null()), Some(0));
    assert!(archive.join("manifest.json").exists());
    // The name is taken now. That is what counts, and not that nobody can be told.
    assert_eq!(dump(full().into()), Some(1));
}

#[test]
fn a_report_that_cannot_be_printed_is_told_and_makes_no_failure_of_a_dump() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    let mut dump = Command::new(client_binary());
    dump.args(["dump", "-U", "postgres", "-d", "db", "-p", &cluster.port().to_string(), "-f"]);
    dump.arg(&archive).arg("-h").arg(cluster.host()).args(["--report", "json"]);
    dump.arg("--bindir").arg(cluster.bindir());
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full is there");
    let output = dump.stdout(full).stderr(Stdio::piped()).output().expect("the dump runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("warning: could not write the report: "), "{stderr}");
    assert!(archive.join("manifest.json").exists());
}

#[test]
fn an_archive_may_have_any_name() {
    let (cluster, directory) = start();
    let long = "n".repeat(255 - ".partial".len());
    for name in ["with blank", "it's", "-x", "line\nbreak", "v1.5", &long] {
        let archive = directory.path().join(name);
        let finished = Stillpoint::dump(&cluster, "db", &archive).run();
        finished.assert_exit(0);
        pg_restore(&cluster, "db").arg("-l").arg("--").arg(&archive).run().assert_exit(0);
        assert!(archive.join("manifest.json").exists());
    }
    // Not UTF-8, as file names may be; a report is JSON and shows it as well as it can.
    let archive = directory.path().join(OsStr::from_bytes(b"caf\xe9"));
    let finished = Stillpoint::dump(&cluster, "db", &archive).run();
    finished.assert_exit(0);
    assert!(finished.report()["archive"].as_str().is_some_and(|name| name.contains("caf")));
    let verify = Stillpoint::unconnected(&cluster, "verify").args(["--report", "json"]);
    let verified = verify.arg(&archive).run();
    verified.assert_exit(0);
    assert!(verified.report()["archive"].as_str().is_some_and(|name| name.contains("caf")));
    // Too long for the unfinished one to have its name.
    let archive = directory.path().join("n".repeat(250));
    let finished = Stillpoint::dump(&cluster, "db", &archive).run();
    finished.assert_exit(1).assert_stderr("File name too long (os error 36)");
    assert_nothing_left(&archive);
}
