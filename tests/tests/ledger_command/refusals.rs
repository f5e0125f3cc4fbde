//! What is refused, and with which words.

use stillpoint_tests::{Cluster, Stillpoint};

use crate::{DATABASE, Scene, assert_one_line, assert_refused};

const INSTALL: &str = "A superuser installs it in each database: CREATE EXTENSION stillpoint;";

#[test]
fn a_database_without_the_extension_is_told_how_to_get_it() {
    let scene = Scene::new();
    scene.cluster.create_database("bare");
    for action in ["status", "bookmark", "consumers", "prune"] {
        assert_refused(
            &Stillpoint::ledger(&scene.cluster, "bare", action).run(),
            1,
            "extension \"stillpoint\" is not installed in database \"bare\"",
            INSTALL,
        );
    }
}

#[test]
fn functions_that_bear_the_name_of_the_extensions_are_not_called() {
    let scene = Scene::new();
    scene.cluster.create_database("trap");
    // Made by whoever may make a schema, for a superuser to call.
    scene.cluster.session("trap").exec(
        "CREATE SCHEMA stillpoint; CREATE TABLE sprung ();
         CREATE FUNCTION stillpoint.bookmark() RETURNS text LANGUAGE plpgsql AS
             'BEGIN DROP TABLE public.sprung; RETURN ''{}''; END'",
    );
    assert_refused(
        &Stillpoint::ledger(&scene.cluster, "trap", "bookmark").run(),
        1,
        "extension \"stillpoint\" is not installed in database \"trap\"",
        INSTALL,
    );
    scene.cluster.session("trap").exec("DROP TABLE sprung");
}

#[test]
fn an_older_version_is_told_with_the_statement_that_updates_it() {
    let cluster = Cluster::preloaded();
    for version in ["0.1.0", "0.2.0"] {
        let mut session = cluster.session(DATABASE);
        session.exec(&format!("CREATE EXTENSION stillpoint VERSION '{version}'"));
        let message = format!(
            "extension \"stillpoint\" in database \"postgres\" is of version {version}, and \
             reading the ledger takes version 0.3.0 or newer"
        );
        assert_refused(
            &Stillpoint::ledger(&cluster, DATABASE, "status").run(),
            1,
            &message,
            "A superuser updates it in each database: ALTER EXTENSION stillpoint UPDATE;",
        );
        session.exec("ALTER EXTENSION stillpoint UPDATE");
        Stillpoint::ledger(&cluster, DATABASE, "status").run().assert_exit(0);
        session.exec("DROP EXTENSION stillpoint");
    }
}

#[test]
fn a_role_is_told_which_grant_it_lacks_and_that_grant_is_enough() {
    let mut scene = Scene::new();
    let base = scene.consumer_with_backup("nightly");
    scene.session.exec("CREATE ROLE \"back up\" LOGIN");
    scene.cluster.allow_log("permission denied for ");
    // Each lacks one thing more than those before it.
    let actions: [(&str, &[&str], &str); 11] = [
        ("status", &[], "USAGE ON SCHEMA stillpoint"),
        ("bookmark", &[], "EXECUTE ON FUNCTION stillpoint.bookmark()"),
        ("since", &[&base], "EXECUTE ON FUNCTION stillpoint.invalidated_since(text)"),
        (
            "since",
            &[&base, "--upto", &base],
            "EXECUTE ON FUNCTION stillpoint.invalidated_between(text, text)",
        ),
        (
            "since",
            &[&base, "--segments"],
            "EXECUTE ON FUNCTION pg_catalog.pg_ls_dir(text, boolean, boolean)",
        ),
        ("consumers", &[], "SELECT ON stillpoint.consumers"),
        ("register", &["mine"], "EXECUTE ON FUNCTION stillpoint.register_consumer(text)"),
        ("begin", &["mine"], "EXECUTE ON FUNCTION stillpoint.begin_backup(text)"),
        ("begin", &["mine", "--", "true"], "EXECUTE ON FUNCTION stillpoint.end_backup(text, text)"),
        ("drop", &["mine"], "EXECUTE ON FUNCTION stillpoint.drop_consumer(text)"),
        ("prune", &[], "EXECUTE ON FUNCTION stillpoint.prune()"),
    ];
    for (action, arguments, privilege) in actions {
        let run = || scene.ledger(action).args(["-U", "back up"]).args(arguments).run();
        let grant = format!("GRANT {privilege} TO \"back up\";");
        let finished = run();
        let code = if arguments.contains(&"--") { 125 } else { 1 };
        finished.assert_exit(code).assert_stderr("permission denied for ");
        finished.assert_stderr(&format!("hint: A superuser can allow it: {grant}\n"));
        scene.cluster.session(DATABASE).exec(&grant);
        run().assert_exit(0);
    }
}

#[test]
fn what_the_server_says_is_told_with_detail_and_hint() {
    let scene = Scene::new();
    scene.cluster.create_database("other");
    scene.cluster.create_extension("other");
    let bookmark = scene.bookmark();
    scene.cluster.allow_log("the bookmark was taken in another database");
    let finished = Stillpoint::ledger(&scene.cluster, "other", "since").arg(&bookmark).run();
    finished.assert_exit(1);
    finished.assert_stderr(
        "error: could not read what is void: the bookmark was taken in another database (It is of \
         the database with OID ",
    );
    finished.assert_stderr("hint: Ask in the database where it was taken: ");
    scene.cluster.allow_log("this is not a bookmark of the ledger");
    let finished = scene.ledger("since").arg("nonsense").run();
    finished.assert_exit(1).assert_stderr("this is not a bookmark of the ledger\n");
}

#[test]
fn a_standby_is_read_and_takes_no_bookmark() {
    let mut scene = Scene::new();
    let base = scene.bookmark();
    scene.session.exec("TRUNCATE t");
    let standby = scene.cluster.start_standby();
    let on_standby = |action| Stillpoint::ledger(&standby, DATABASE, action);
    let paths = ["--format", "paths"];
    let finished = on_standby("since").arg(&base).args(paths).run();
    finished.assert_exit(0);
    assert_eq!(finished.stdout, scene.ledger("since").arg(&base).args(paths).run().stdout);
    standby.allow_log("cannot execute stillpoint.bookmark() during recovery");
    let finished = on_standby("bookmark").run();
    finished.assert_exit(1).assert_stderr("hint: Take the bookmark on the primary");
}

#[test]
fn settings_of_a_role_do_not_matter() {
    let mut scene = Scene::new();
    scene.session.exec(
        "ALTER ROLE postgres SET default_transaction_read_only = on;
         ALTER ROLE postgres SET default_transaction_isolation = 'serializable';
         ALTER ROLE postgres SET datestyle = 'SQL, DMY';
         ALTER ROLE postgres SET timezone = 'Asia/Kolkata';
         ALTER ROLE postgres SET idle_session_timeout = '1s';
         ALTER ROLE postgres SET search_path = public",
    );
    let base = scene.consumer_with_backup("nightly");
    let report = scene.told("consumers", &["--format", "json"]).report();
    let told = report["consumers"][0]["registered_at"].as_str().expect("a time").to_owned();
    let is_same = format!("SELECT registered_at = '{told}' FROM stillpoint.consumers");
    assert!(scene.session.yes(&is_same), "{told}");
    scene.told("since", &[&base]);
    scene.told("begin", &["nightly", "--", "sleep", "1.5"]);
}

#[test]
fn wrong_usage_is_told_before_anything_is_connected() {
    let cluster = Cluster::start();
    let wrong: [(&[&str], &str); 11] = [
        (&[], "Tell which files an incremental backup may not keep; keep account of backups"),
        (&["frob"], "error: unrecognized subcommand 'frob'"),
        (&["since"], "error: the following required arguments were not provided:"),
        (&["since", ""], "error: invalid value '' for '[BOOKMARK]': it is empty"),
        (
            &["since", "{}", "--consumer", "c"],
            "error: the argument '[BOOKMARK]' cannot be used with '--consumer <NAME>'",
        ),
        (
            &["since", "-", "--upto", "-"],
            "stillpoint: error: standard input holds one bookmark only",
        ),
        (
            &["since", "{}", "-0", "--format", "json"],
            "stillpoint: error: --null goes with --format=paths only",
        ),
        (&["status", "--format", "paths"], "error: invalid value 'paths' for '--format <FORMAT>'"),
        (
            &["begin", "c", "--format", "json", "--", "true"],
            "error: the argument '--format <FORMAT>' cannot be used with '[COMMAND]...'",
        ),
        (&["end", "c"], "error: the following required arguments were not provided:"),
        (
            &["status", "-p", "x"],
            "stillpoint: error: invalid connection setting port: it must be a number from 1 to \
             65535",
        ),
    ];
    for (arguments, line) in wrong {
        let finished = Stillpoint::unconnected(&cluster, "ledger").args(arguments).run();
        finished.assert_exit(64);
        assert_eq!(finished.stderr.lines().next(), Some(line), "{}", finished.scene());
    }
}

#[test]
fn a_password_is_in_no_message() {
    let mut scene = Scene::new();
    scene.session.exec("CREATE ROLE alice LOGIN PASSWORD 's3cr3t'");
    let uri = format!(
        "postgresql://alice:s3cr3t@/postgres?host={}&port={}",
        scene.cluster.host().display(),
        scene.cluster.port()
    );
    let run = |arguments: &[&str]| {
        let ledger = Stillpoint::unconnected(&scene.cluster, "ledger");
        ledger.args(arguments).args(["-d", &uri]).run()
    };
    let finished = run(&["status"]);
    finished.assert_exit(1).assert_stderr("TO \"alice\"");
    assert!(!finished.stderr.contains("s3cr3t"), "{}", finished.scene());
    scene.session.exec("GRANT USAGE ON SCHEMA stillpoint TO alice");
    let finished = run(&["status", "--format", "json"]);
    finished.assert_exit(0);
    assert!(!(finished.stderr.clone() + &finished.stdout).contains("s3cr3t"));
    assert_one_line(
        &run(&["register", "x"]),
        "error: could not register the consumer: permission denied for function \
         register_consumer\nstillpoint: hint: A superuser can allow it: GRANT EXECUTE ON FUNCTION \
         stillpoint.register_consumer(text) TO \"alice\";",
    );
    scene.cluster.allow_log("permission denied for function register_consumer");
}
