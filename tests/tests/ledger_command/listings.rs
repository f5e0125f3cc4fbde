//! What is listed, and in which form.

use std::fs::{self, File};

use serde_json::{Value, json};

use crate::{DATABASE, Scene, assert_one_line};

#[test]
fn the_status_is_told_for_people_and_for_programs() {
    let mut scene = Scene::new();
    let bookmark = scene.bookmark();
    let finished = scene.told("status", &[]);
    let keys: Vec<&str> =
        finished.stdout.lines().filter_map(|line| line.split(": ").next()).collect();
    let expected = ["preloaded", "recording", "complete since", "rows", "bytes", "oldest bookmark"];
    assert_eq!(keys, expected, "{}", finished.scene());
    assert!(finished.stdout.contains(&format!("oldest bookmark: {bookmark}\n")));
    finished.assert_stderr("the ledger of database \"postgres\" records: 0 rows, complete since 2");

    let status = scene.told("status", &["--format", "json"]).report();
    assert_eq!(status["command"], "ledger status");
    assert_eq!(status["database"], DATABASE);
    assert_eq!([&status["preloaded"], &status["recording"]], [true, true]);
    assert_eq!((&status["rows"], &status["oldest_bookmark"]), (&json!(0), &json!(bookmark)));
    assert!(status["bytes"].is_u64());
    // A time that the server reads as the one that it has said.
    let since = status["complete_since"].as_str().expect("a time");
    assert!(since.ends_with('Z') && since.contains('T'), "{since}");
    let is_same = format!("SELECT complete_since = '{since}' FROM stillpoint.status()");
    assert!(scene.session.yes(&is_same), "{since}");

    scene.session.exec("ALTER SYSTEM SET stillpoint.enabled = off");
    scene.cluster.restart();
    let finished = scene.told("status", &[]);
    assert!(finished.stdout.contains("recording:       no\n"), "{}", finished.scene());
    assert_one_line(&finished, "the ledger of database \"postgres\" does not record");
}

#[test]
fn a_bookmark_is_printed_alone_on_a_line_and_is_one() {
    let mut scene = Scene::new();
    let finished = scene.told("bookmark", &[]);
    assert_one_line(&finished, "took a bookmark in database \"postgres\"");
    let bookmark = finished.stdout.strip_suffix('\n').expect("a line");
    serde_json::from_str::<Value>(bookmark).expect("JSON");
    let known = format!("SELECT count(*) FROM stillpoint.bookmark WHERE bookmark = '{bookmark}'");
    assert_eq!(scene.session.number(&known), 1);

    let report = scene.told("bookmark", &["--format", "json"]).report();
    assert_eq!(report["command"], "ledger bookmark");
    let second = report["bookmark"].as_str().expect("a bookmark is text");
    assert!(second.starts_with('{') && second != bookmark);
}

#[test]
fn what_is_void_is_a_table_a_json_object_or_paths() {
    let mut scene = Scene::new();
    let base = scene.bookmark();
    let nothing = scene.told("since", &[&base]);
    assert_eq!(nothing.stdout, "", "a heading and nothing below it");
    assert_one_line(&nothing, "0 paths are void in database \"postgres\"");
    let nothing = scene.told("since", &[&base, "--format", "json"]).report();
    assert_eq!(nothing["files"], json!([]));

    let old = scene.path("t");
    scene.session.exec("TRUNCATE t");
    let new = scene.path("t");
    let mut paths = [old.clone(), new];
    paths.sort();
    let [first, second] = &paths;

    let finished = scene.told("since", &[&base, "--format", "paths"]);
    assert_eq!(finished.stdout, format!("{first}\n{second}\n"));
    assert_one_line(&finished, "2 paths are void in database \"postgres\"");
    assert_eq!(scene.told("since", &[&base, "-0"]).stdout, format!("{first}\0{second}\0"));

    let finished = scene.told("since", &[&base]);
    let lines: Vec<&str> = finished.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", finished.scene());
    assert!(lines[0].starts_with("PATH "), "{}", finished.scene());
    let cells = lines[1].split("  ").map(str::trim).filter(|cell| !cell.is_empty());
    let cells: Vec<&str> = cells.collect();
    assert_eq!(cells[..4], [first, "t", "replaced", "TRUNCATE TABLE"]);

    let report = scene.told("since", &[&base, "--format", "json"]).report();
    assert_eq!(report["command"], "ledger since");
    assert_eq!((&report["base"], &report["upto"]), (&json!(base), &Value::Null));
    assert_eq!(report["consumer"], Value::Null);
    let files = report["files"].as_array().expect("an array");
    let file = files.iter().find(|file| file["path"] == *old).expect("the old file");
    let oid = scene.session.number("SELECT 't'::regclass::oid");
    assert_eq!(file["relation"], oid);
    assert_eq!(file["filenode"], oid, "of a table that was never rewritten");
    assert_eq!(file["tablespace"], 1663);
    assert_eq!(file["relation_name"], "t");
    assert_eq!(file["effects"], json!(["replaced"]));
    assert_eq!(file["commands"], json!(["TRUNCATE TABLE"]));
    assert_eq!(file["segments"], Value::Null);
    assert_eq!(file["first_at"], file["last_at"]);
    assert!(file["last_at"].as_str().is_some_and(|time| time.ends_with('Z')));
}

#[test]
fn a_bookmark_is_taken_as_text_from_a_file_and_from_standard_input() {
    let mut scene = Scene::new();
    let base = scene.bookmark();
    scene.session.exec("TRUNCATE t");
    let upto = scene.bookmark();
    scene.session.exec("CREATE TABLE other (id int)");
    scene.session.exec("TRUNCATE other");
    let void = scene.told("since", &[&base, "--upto", &upto, "--format", "paths"]).stdout;
    assert_eq!(void.lines().count(), 2, "{void}");
    assert_eq!(scene.told("since", &[&base, "--format", "paths"]).stdout.lines().count(), 4);

    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("the bookmark");
    fs::write(&file, format!("{base}\n")).expect("a file");
    let named = format!("@{}", file.display());
    let from_file = scene.told("since", &[&named, "--upto", &upto, "--format=paths"]);
    assert_eq!(from_file.stdout, void);
    let open = || File::open(&file).expect("it is there");
    let from_input = ["-", "--upto", &upto, "--format=paths"];
    let from_input = scene.ledger("since").args(from_input).stdin(open()).run();
    assert_eq!(from_input.assert_exit(0).stdout, void);
    let report = scene.ledger("since").args([&base, "--upto=-", "--format=json"]).stdin(open());
    // The same bookmark twice has nothing in between.
    let report = report.run().report();
    assert_eq!((&report["upto"], &report["files"]), (&json!(base), &json!([])));

    fs::write(&file, "\n").expect("a file");
    let finished = scene.ledger("since").arg(&named).run();
    finished.assert_exit(1);
    let message = format!("error: there is no bookmark in \"{}\"", file.display());
    assert_one_line(&finished, &message);
}

#[test]
fn segments_are_the_files_that_are_there() {
    let mut scene = Scene::new();
    scene.cluster.create_tablespace("elsewhere");
    scene.session.exec("CREATE UNLOGGED TABLE u (id int) TABLESPACE elsewhere");
    scene.session.exec("CREATE TABLE gone (id int)");
    let base = scene.bookmark();
    let gone = scene.path("gone");
    scene.session.exec("DROP TABLE gone");
    scene.session.exec("VACUUM t");
    scene.session.exec("TRUNCATE u");
    // Files of what was dropped are taken away by the checkpoint.
    scene.session.exec("CHECKPOINT");
    let (t, u) = (scene.path("t"), scene.path("u"));
    // A second segment, as of a table of more than 1 GB.
    let data = scene.cluster.data_directory();
    File::create(data.join(format!("{t}.1"))).expect("a file");
    File::create(data.join(format!("{t}0"))).expect("a file");
    let expected = [
        t.clone(),
        format!("{t}.1"),
        format!("{t}_fsm"),
        format!("{t}_vm"),
        u.clone(),
        format!("{u}_init"),
    ];

    let finished = scene.told("since", &[&base, "--segments", "--format", "paths"]);
    let paths: Vec<&str> = finished.stdout.lines().collect();
    assert_eq!(paths, expected, "{}", finished.scene());
    let without = scene.told("since", &[&base, "--format", "paths"]).stdout;
    assert!(without.lines().any(|path| path == gone), "{without}");

    let report = scene.told("since", &[&base, "--segments", "--format", "json"]).report();
    let segments = |path: &str| {
        let files = report["files"].as_array().expect("an array");
        files.iter().find(|file| file["path"] == path).expect("the file")["segments"].clone()
    };
    assert_eq!(segments(&gone), json!([]));
    assert_eq!(segments(&t), json!(expected[..4]));
    let text = scene.told("since", &[&base, "--segments"]).stdout;
    assert!(text.lines().any(|line| line == format!("  {t}.1")), "{text}");
}

#[test]
fn consumers_are_listed_with_what_they_have() {
    let scene = Scene::new();
    let none = scene.told("consumers", &[]);
    assert_eq!(none.stdout, "");
    assert_one_line(&none, "0 consumers are known in database \"postgres\"");
    let bookmark = scene.consumer_with_backup("nightly");
    scene.told("register", &["Other one"]);

    let report = scene.told("consumers", &["--format", "json"]).report();
    let consumers = report["consumers"].as_array().expect("an array");
    assert_eq!(consumers.len(), 2);
    let (other, nightly) = (&consumers[0], &consumers[1]);
    assert_eq!((&other["name"], &nightly["name"]), (&json!("Other one"), &json!("nightly")));
    assert_eq!((&other["bookmark"], &other["last_backup_at"]), (&Value::Null, &Value::Null));
    assert_eq!(nightly["bookmark"], json!(bookmark));
    assert!(nightly["last_backup_at"].as_str().is_some_and(|time| time.ends_with('Z')));
    assert_eq!((&nightly["lost"], &nightly["running_pid"]), (&json!(false), &Value::Null));

    let finished = scene.told("consumers", &[]);
    let lines: Vec<&str> = finished.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", finished.scene());
    assert!(lines[0].starts_with("NAME       REGISTERED"), "{}", finished.scene());
    assert!(lines[1].starts_with("Other one  2") && lines[1].contains("  none"));

    assert_one_line(
        &scene.told("drop", &["Other one"]),
        "dropped consumer \"Other one\" in database \"postgres\"",
    );
    let report = scene.told("consumers", &["--format", "json"]).report();
    assert_eq!(report["consumers"].as_array().map(Vec::len), Some(1));
}

#[test]
fn pruning_tells_how_many_rows_it_has_removed() {
    let mut scene = Scene::new();
    scene.told("register", &["nightly"]);
    scene.session.exec("TRUNCATE t");
    assert_eq!(scene.told("prune", &[]).stdout, "rows removed: 0\n");
    // What is older than the retention goes.
    scene.session.exec("UPDATE stillpoint.invalidation SET recorded_at = '2000-01-01'");
    let rows = scene.session.number("SELECT count(*) FROM stillpoint.invalidation");
    assert!(rows > 0);
    let report = scene.told("prune", &["--format", "json"]).report();
    assert_eq!(
        (&report["command"], &report["rows_removed"]),
        (&json!("ledger prune"), &json!(rows))
    );
}
