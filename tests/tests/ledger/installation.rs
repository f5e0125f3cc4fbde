//! Installing, looking at, dumping and removing the extension while it records.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use stillpoint_tests::ledger::Mark;
use stillpoint_tests::{Cluster, ClusterOptions, pg_dump, psql, restore_into};

use crate::{DATABASE, Scene, T, whole};

const STATUS: &str = "SELECT concat_ws(' ', preloaded, recording, complete_since IS NOT NULL, rows)
                        FROM stillpoint.status()";

#[test]
fn without_the_library_preloaded_an_installation_warns_and_says_what_to_do() {
    let cluster = Cluster::start();
    cluster.allow_log("is not preloaded");
    let finished = psql(&cluster, DATABASE).args(["-c", "CREATE EXTENSION stillpoint"]).run();
    finished.assert_exit(0).assert_stderr("WARNING:  ").assert_stderr("HINT:  ");
    finished.assert_stderr("shared_preload_libraries");
    let mut session = cluster.session(DATABASE);
    assert_eq!(session.text(STATUS), "f f f 0");
    session.exec("CREATE TABLE t (id int); TRUNCATE t");
    session.exec("VACUUM t");
    assert_eq!(session.text(STATUS), "f f f 0");
}

#[test]
fn with_the_library_preloaded_nothing_is_warned_about() {
    let cluster = ClusterOptions::default().preload().start();
    let finished = psql(&cluster, DATABASE).args(["-c", "CREATE EXTENSION stillpoint"]).run();
    finished.assert_exit(0).assert_silent();
}

#[test]
fn the_status_says_what_there_is() {
    let mut scene = Scene::new(T);
    assert_eq!(scene.session.text(STATUS), "t t t 0");
    scene.session.exec("TRUNCATE t");
    assert_eq!(scene.session.text(STATUS), "t t t 4");
    let size = "SELECT bytes > 0 AND oldest_bookmark IS NULL FROM stillpoint.status()";
    assert!(scene.session.yes(size));
    scene.session.exec("SET stillpoint.enabled = off");
    assert_eq!(scene.session.text(STATUS), "t f f 4");
}

#[test]
fn a_ledger_is_complete_over_a_restart_but_not_over_a_run_without_the_library() {
    let mut scene = Scene::new(T);
    let since = "SELECT complete_since::text FROM stillpoint.status()";
    let first = scene.session.text(since);
    assert_eq!(scene.observer.text(since), first);
    scene.cluster.restart();
    assert_eq!(scene.cluster.session(DATABASE).text(since), first);
    scene.cluster.restart_with("shared_preload_libraries = ''");
    scene.cluster.restart_with("shared_preload_libraries = 'stillpoint'");
    let mut session = scene.cluster.session(DATABASE);
    let later = session.text(since);
    assert!(session.yes(&format!("SELECT '{later}'::timestamptz > '{first}'::timestamptz")));
}

#[test]
fn the_settings_are_as_documented() {
    let mut scene = Scene::new("");
    let settings = scene.session.texts(
        "SELECT concat_ws(' ', name, setting, context) FROM pg_settings
          WHERE name LIKE 'stillpoint.%' AND name <> 'stillpoint.mutant' ORDER BY name",
    );
    let month = 30 * 24 * 60;
    assert_eq!(
        settings,
        [
            "stillpoint.enabled on superuser",
            &format!("stillpoint.ledger_retention {month} superuser"),
            "stillpoint.on_record_failure error superuser",
            "stillpoint.record_vacuum all superuser",
        ]
    );
    assert_eq!(scene.session.text("SHOW stillpoint.ledger_retention"), "30d");
}

#[test]
fn the_ledger_is_a_heap_whatever_is_the_default() {
    let cluster = ClusterOptions::default().preload().start();
    let mut session = cluster.session(DATABASE);
    session.exec(
        "CREATE ACCESS METHOD heap2 TYPE TABLE HANDLER heap_tableam_handler;
         SET default_table_access_method = heap2",
    );
    let methods = "SELECT DISTINCT a.amname FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam
                    WHERE c.relnamespace = 'stillpoint'::regnamespace AND c.relkind = 'r'";
    session.exec("CREATE EXTENSION stillpoint");
    assert_eq!(session.texts(methods), ["heap"]);
    session.exec("DROP EXTENSION stillpoint; CREATE EXTENSION stillpoint VERSION '0.1.0'");
    session.exec("ALTER EXTENSION stillpoint UPDATE");
    assert_eq!(session.texts(methods), ["heap"]);
}

#[test]
fn recording_switched_off_records_nothing() {
    let mut scene = Scene::new(T);
    let told = scene.told(&["TRUNCATE t"]);
    assert!(!told.is_empty());
    let mark = Mark::now(&mut scene.observer);
    scene.session.exec("SET stillpoint.enabled = off");
    for statement in ["TRUNCATE t", "VACUUM t", "VACUUM FULL t", "DROP TABLE t"] {
        scene.session.exec(statement);
    }
    let rows = format!("SELECT count(*) FROM stillpoint.invalidation WHERE {}", mark.since());
    assert_eq!(scene.observer.number(&rows), 0);
}

#[test]
fn making_and_dropping_the_extension_tells_nothing_and_works_twice() {
    let mut scene = Scene::new(T);
    scene.session.exec("TRUNCATE t");
    scene.session.exec("DROP EXTENSION stillpoint");
    scene.session.exec("TRUNCATE t");
    scene.session.exec("VACUUM t");
    scene.session.exec("CREATE EXTENSION stillpoint");
    assert_eq!(scene.session.number("SELECT count(*) FROM stillpoint.invalidation"), 0);
    assert_eq!(scene.told(&["TRUNCATE t"]), whole("replaced", "t", "TRUNCATE TABLE"));
    let _ = scene.refusal("CREATE EXTENSION stillpoint");
    scene.session.exec("CREATE EXTENSION IF NOT EXISTS stillpoint");
    assert_eq!(scene.told(&["VACUUM t"]), whole("pages", "t", "VACUUM"));
    // In one transaction with the work that it does not know of.
    scene.session.exec("BEGIN; TRUNCATE t; DROP EXTENSION stillpoint; COMMIT");
    scene.session.exec("BEGIN; CREATE EXTENSION stillpoint; TRUNCATE t; COMMIT");
    assert_eq!(scene.told(&["TRUNCATE t"]), whole("replaced", "t", "TRUNCATE TABLE"));
    scene.session.exec("BEGIN; TRUNCATE t; DROP EXTENSION stillpoint; ROLLBACK");
    assert_eq!(scene.told(&["TRUNCATE t"]), whole("replaced", "t", "TRUNCATE TABLE"));
}

#[test]
fn the_extension_is_dropped_and_made_under_load_without_a_statement_failing() {
    let scene = Scene::new("");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|number| {
                let mut session = scene.cluster.session(DATABASE);
                session.exec(&format!("CREATE TABLE w{number} (id int PRIMARY KEY, word text)"));
                let stop = &stop;
                scope.spawn(move || {
                    let mut rounds = 0;
                    while !stop.load(Ordering::Relaxed) || rounds < 5 {
                        session.exec(&format!("TRUNCATE w{number}"));
                        session.exec(&format!("VACUUM w{number}"));
                        session.exec(&format!("BEGIN; TRUNCATE w{number}; ROLLBACK"));
                        session.exec(&format!("VACUUM FULL w{number}"));
                        session.exec(&format!("REINDEX TABLE w{number}"));
                        rounds += 1;
                    }
                })
            })
            .collect();
        let mut session = scene.cluster.session(DATABASE);
        for _ in 0..25 {
            session.exec("DROP EXTENSION stillpoint");
            session.exec("CREATE EXTENSION stillpoint");
        }
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("no statement fails");
        }
    });
    let mut scene = scene;
    let told = scene.told(&["TRUNCATE w0"]);
    assert_eq!(told, whole("replaced", "w0", "TRUNCATE TABLE"));
}

#[test]
fn a_dump_has_the_extension_and_not_its_rows() {
    let mut scene = Scene::new(T);
    scene.session.exec("TRUNCATE t; INSERT INTO t VALUES (1, 'x')");
    let dump = pg_dump(&scene.cluster, DATABASE).run();
    dump.assert_exit(0).assert_silent();
    assert!(dump.stdout.contains("CREATE EXTENSION IF NOT EXISTS stillpoint"), "{}", dump.stdout);
    assert!(!dump.stdout.contains("COPY stillpoint."), "{}", dump.stdout);
    assert!(!dump.stdout.contains("CREATE TABLE stillpoint."), "{}", dump.stdout);

    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    pg_dump(&scene.cluster, DATABASE).arg("-Fd").arg("-f").arg(&archive).run().assert_exit(0);
    restore_into(&scene.cluster, &archive, "restored");
    let mut restored = scene.cluster.session("restored");
    assert_eq!(restored.text("SELECT word FROM t"), "x");
    // The restore itself truncates what it loads. Of the original's rows there is none.
    let foreign = "SELECT count(*) FROM stillpoint.invalidation WHERE database <>
                        (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(restored.number(foreign), 0);
    let rows = "SELECT rows FROM stillpoint.status()";
    let before = restored.number(rows);
    restored.exec("TRUNCATE t");
    assert_eq!(restored.number(rows), before + 4);
}

#[test]
fn a_database_made_from_a_template_records_as_itself() {
    let mut scene = Scene::new("");
    scene.cluster.create_database("original");
    scene.cluster.create_extension("original");
    let mut original = scene.cluster.session("original");
    original.exec(T);
    original.exec("TRUNCATE t");
    drop(original);
    scene.session.exec("DROP DATABASE IF EXISTS copy");
    stillpoint_tests::wait_until(
        &mut scene.observer,
        "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = 'original')",
    );
    scene.session.exec("CREATE DATABASE copy TEMPLATE original");
    let mut copy = scene.cluster.session("copy");
    // The rows of the original are there, and are none of this database's.
    assert_eq!(copy.number("SELECT count(*) FROM stillpoint.invalidation"), 4);
    copy.exec("TRUNCATE t");
    copy.exec("VACUUM t");
    let told = copy.texts(
        "SELECT concat_ws(' ', effect, relation_name) FROM stillpoint.invalidation
          WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND relation_name = 't' ORDER BY xid",
    );
    assert_eq!(told, ["replaced t", "pages t"]);
}

#[test]
fn an_interval_that_was_open_when_the_database_was_cloned_does_no_harm_there() {
    let mut scene = Scene::new("");
    scene.cluster.create_database("original");
    scene.cluster.create_extension("original");
    let mut original = scene.cluster.session("original");
    original.exec(T);
    let mut holder = scene.cluster.session("original");
    holder.exec("BEGIN; LOCK TABLE t");
    original.exec("SET lock_timeout = 1");
    scene.cluster.allow_log("canceling statement due to lock timeout");
    assert!(original.try_exec("VACUUM t").is_err());
    drop((original, holder));
    stillpoint_tests::wait_until(
        &mut scene.observer,
        "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = 'original')",
    );
    scene.session.exec("CREATE DATABASE copy TEMPLATE original");
    let mut copy = scene.cluster.session("copy");
    copy.exec("VACUUM t");
    let own = "SELECT bool_and(finished_xid IS NOT NULL) FROM stillpoint.invalidation
                WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert!(copy.yes(own));
}
