//! Wrong usage is told before anything is connected, with exit code 64.

use stillpoint_tests::{Cluster, Finished, Stillpoint};

use super::{assert_nothing_left, start};

/// Arguments after `dump -f ARCHIVE -d db`, and the first line of what is said.
const WRONG: &[(&[&str], &str)] = &[
    (&["--frob"], "error: unexpected argument '--frob' found"),
    (
        &["-Z", "bzip2"],
        "error: invalid value 'bzip2' for '--compress <METHOD>': unrecognized compression \
         algorithm: \"bzip2\"",
    ),
    (
        &["-Z", "gzip:12"],
        "error: invalid value 'gzip:12' for '--compress <METHOD>': compression algorithm \"gzip\" \
         expects a level between 1 and 9, not 12",
    ),
    (
        &["-Z", "none:1"],
        "error: invalid value 'none:1' for '--compress <METHOD>': compression algorithm \"none\" \
         takes no level",
    ),
    (&["-j", "0"], "error: invalid value '0' for '--jobs <N>': 0 is not in 1..=1024"),
    (
        &["--attempts", "0"],
        "error: invalid value '0' for '--attempts <N>': it must be a number from 1 to 1000 (here \
         or in STILLPOINT_SNAPSHOT_ATTEMPTS)",
    ),
    (
        &["--lock-timeout", "soon"],
        "error: invalid value 'soon' for '--lock-timeout <SECONDS>': it must be a number of seconds",
    ),
    (&["--backoff", "-1"], "error: unexpected argument '-1' found"),
    (&["--report", "xml"], "error: invalid value 'xml' for '--report <FORMAT>'"),
    (&["another"], "error: the argument '--dbname <DBNAME>' cannot be used with '[DBNAME]'"),
    (
        &["-p", "x"],
        "stillpoint: error: invalid connection setting port: it must be a number from 1 to 65535",
    ),
];

#[track_caller]
fn assert_usage(finished: &Finished, first_line: &str) {
    finished.assert_exit(64);
    assert_eq!(finished.stderr.lines().next(), Some(first_line), "{}", finished.scene());
}

#[test]
fn wrong_usage_is_told_with_its_own_exit_code_and_nothing_is_connected() {
    let cluster = Cluster::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    // Nobody is there: whoever connected would say so.
    let dump = || {
        Stillpoint::unconnected(&cluster, "dump")
            .args(["-h", "/nonexistent", "-d", "db", "-f"])
            .arg(&archive)
    };
    for (arguments, message) in WRONG {
        assert_usage(&dump().args(*arguments).run(), message);
    }
    let attempts = "STILLPOINT_SNAPSHOT_ATTEMPTS";
    assert_usage(
        &dump().env(attempts, "many").run(),
        "error: invalid value 'many' for '--attempts <N>': it must be a number from 1 to 1000 \
         (here or in STILLPOINT_SNAPSHOT_ATTEMPTS)",
    );
    // What the option says is not asked of the variable.
    dump().env(attempts, "many").args(["--attempts", "1"]).run().assert_exit(1);
    assert_usage(
        &dump().env("PGSERVICE", "production").run(),
        "stillpoint: error: invalid connection setting PGSERVICE: this version does not follow \
         this variable",
    );
    for (settings, message) in [
        (
            "host=h sslmode=require",
            "an encrypted connection is asked for (sslmode), which this version cannot make",
        ),
        (
            "host=h pasword=x",
            "invalid connection setting -d: invalid connection string: unknown option `pasword`",
        ),
    ] {
        let finished = Stillpoint::unconnected(&cluster, "dump")
            .args(["-d", settings, "-f"])
            .arg(&archive)
            .run();
        assert_usage(&finished, &format!("stillpoint: error: {message}"));
    }
    // What changes a database changes none that nobody has named.
    assert_usage(
        &Stillpoint::unconnected(&cluster, "restore").arg(&archive).run(),
        "stillpoint: error: no database to restore into is named",
    );
    assert_usage(
        &Stillpoint::unconnected(&cluster, "dump").run(),
        "error: the following required arguments were not provided:",
    );
    assert_usage(
        &Stillpoint::unconnected(&cluster, "frob").run(),
        "error: unrecognized subcommand 'frob'",
    );
    assert_nothing_left(&archive);
}

#[test]
fn help_and_version_are_no_errors() {
    let cluster = Cluster::start();
    let version = Stillpoint::unconnected(&cluster, "--version").run();
    version.assert_exit(0).assert_silent();
    assert_eq!(version.stdout, format!("stillpoint {}\n", env!("CARGO_PKG_VERSION")));
    let help = Stillpoint::unconnected(&cluster, "--help").run();
    help.assert_exit(0).assert_silent();
    assert!(help.stdout.contains("Usage: stillpoint"), "{}", help.scene());
    let help = Stillpoint::unconnected(&cluster, "dump").arg("--help").run();
    help.assert_exit(0).assert_silent();
    for option in [
        "-d",
        "-h",
        "-p",
        "-U",
        "-f",
        "-j",
        "-Z",
        "-n",
        "-N",
        "-t",
        "-T",
        "--attempts",
        "--lock-timeout",
        "--strict",
        "--report",
        "--bindir",
        "--log-format",
        "STILLPOINT_SNAPSHOT_ATTEMPTS",
    ] {
        assert!(help.stdout.contains(option), "{option} is missing\n{}", help.scene());
    }
}

#[test]
fn the_last_of_several_options_is_meant() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    let finished = Stillpoint::dump(&cluster, "nosuch", &directory.path().join("other"))
        .args(["-d", "db", "-j", "7", "-j", "1", "-f"])
        .arg(&archive)
        .run();
    finished.assert_exit(0);
    assert!(archive.join("manifest.json").exists(), "{}", finished.scene());
}
