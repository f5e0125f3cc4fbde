//! Where the command connects to, and what it says when it cannot.

use stillpoint_tests::{ClusterOptions, Stillpoint};

use super::{assert_nothing_left, start};

#[test]
fn a_database_is_named_by_option_argument_variable_conninfo_or_uri() {
    let cluster = ClusterOptions::default().tcp().start();
    cluster.create_database("db");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (host, port) = (cluster.host().display().to_string(), cluster.port().to_string());
    let socket = host.replace('/', "%2F");
    let conninfo = format!("host='{host}' port={port} user=postgres dbname=db");
    let uris = [
        format!("postgresql://postgres@/db?host={host}&port={port}"),
        format!("postgres://postgres@{socket}:{port}/db"),
        format!("postgresql://postgres@127.0.0.1:{port}/db?application_name=nightly"),
        format!("postgresql://postgres@127.0.0.1:1,127.0.0.1:{port}/db"),
    ];
    let options: [&str; 6] = ["-h", &host, "-p", &port, "-U", "postgres"];
    let mut ways: Vec<Vec<&str>> = vec![
        [&options[..], &["-d", "db"]].concat(),
        [&options[..], &["db"]].concat(),
        [&options[..], &["-d", "dbname=db"]].concat(),
        // A connection string wins over options.
        vec!["-h", "/nonexistent", "-p", "1", "-U", "nobody", "-d", &conninfo],
        vec![&conninfo],
        vec!["-h", "127.0.0.1,/nonexistent", "-p", &port, "-U", "postgres", "-d", "db"],
    ];
    ways.extend(uris.iter().map(|uri| vec!["-d", uri.as_str()]));
    let dump = |number: usize| {
        let archive = directory.path().join(number.to_string());
        Stillpoint::unconnected(&cluster, "dump").args(["--report", "json", "-f"]).arg(archive)
    };
    for (number, arguments) in ways.iter().enumerate() {
        let finished = dump(number).args(arguments).run();
        finished.assert_exit(0);
        assert_eq!(finished.report()["database"], "db", "{}", finished.scene());
    }
    let variables = [
        ("PGHOST", host.as_str()),
        ("PGPORT", &port),
        ("PGUSER", "postgres"),
        ("PGDATABASE", "db"),
    ];
    let finished =
        variables.iter().fold(dump(100), |dump, (name, value)| dump.env(name, value)).run();
    finished.assert_exit(0);
}

#[test]
fn whoever_is_not_there_or_does_not_let_us_in_is_named() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    let (host, port) = (cluster.host().display().to_string(), cluster.port());
    cluster.allow_log("database \"nosuch\" does not exist");
    cluster.allow_log("role \"nobody\" does not exist");
    let socket = format!("server on socket \"{host}/.s.PGSQL.{port}\"");
    for (arguments, message) in [
        (
            vec!["-d", "nosuch"],
            format!("could not connect: {socket}: FATAL: database \"nosuch\" does not exist"),
        ),
        (
            vec!["-U", "nobody"],
            format!("could not connect: {socket}: FATAL: role \"nobody\" does not exist"),
        ),
        (
            vec!["-h", "/nonexistent"],
            format!(
                "could not connect: server on socket \"/nonexistent/.s.PGSQL.{port}\": error \
                 connecting to server: No such file or directory (os error 2)"
            ),
        ),
        (
            vec!["-h", "127.0.0.1,/nonexistent", "-p", "1"],
            "could not connect: server at \"127.0.0.1\", port 1: error connecting to server: \
             Connection refused (os error 111); server on socket \"/nonexistent/.s.PGSQL.1\": \
             error connecting to server: No such file or directory (os error 2)"
                .to_owned(),
        ),
    ] {
        let finished = Stillpoint::dump(&cluster, "db", &archive).args(arguments).run();
        finished.assert_exit(1);
        assert_eq!(finished.stderr, format!("stillpoint: error: {message}\n"));
        assert_nothing_left(&archive);
    }
}

#[test]
fn a_server_that_is_too_old_is_refused_by_name() {
    let (cluster, directory) = start();
    let archive = directory.path().join("archive");
    // A server that says it is of another version.
    cluster.session("db").exec(
        "SET allow_system_table_mods = on; \
         ALTER FUNCTION pg_catalog.current_setting(text) RENAME TO true_setting; \
         CREATE FUNCTION pg_catalog.current_setting(text) RETURNS text LANGUAGE sql AS \
         $$SELECT CASE $1 WHEN 'server_version_num' THEN '120022' \
                          ELSE pg_catalog.true_setting($1) END$$",
    );
    let finished = Stillpoint::dump(&cluster, "db", &archive).run();
    finished.assert_exit(1);
    assert_eq!(
        finished.stderr,
        "stillpoint: error: server version 12.22 is not supported\n\
         stillpoint: hint: PostgreSQL 13 and newer are supported.\n"
    );
    assert_nothing_left(&archive);
}
