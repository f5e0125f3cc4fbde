//! Other modules hang on the same hook.

use stillpoint_tests::ClusterOptions;

use crate::{DATABASE, Scene, T, whole};

/// With `pg_stat_statements` loaded before or after, both see every statement.
#[track_caller]
fn assert_both_work(libraries: &str) {
    let line = format!("shared_preload_libraries = '{libraries}'");
    let cluster = ClusterOptions::default().setting(&line).start();
    cluster.create_extension(DATABASE);
    let (mut session, observer) = (cluster.session(DATABASE), cluster.session(DATABASE));
    session.exec(T);
    session.exec("CREATE EXTENSION pg_stat_statements; SET pg_stat_statements.track = 'all'");
    let mut scene = Scene { session, observer, cluster };

    assert_eq!(scene.told(&["TRUNCATE t"]), whole("replaced", "t", "TRUNCATE TABLE"));
    assert_eq!(scene.told(&["VACUUM t"]), whole("pages", "t", "VACUUM"));
    let told = scene.told(&["DO 'BEGIN TRUNCATE t; END'"]);
    assert_eq!(told, whole("replaced", "t", "TRUNCATE TABLE"));
    let error = scene.refusal("BEGIN; VACUUM t");
    assert_eq!(error.message(), "VACUUM cannot run inside a transaction block");
    scene.session.exec("ROLLBACK");

    let calls = "SELECT sum(calls) FROM pg_stat_statements WHERE query = ";
    assert_eq!(scene.session.number(&format!("{calls} 'TRUNCATE t'")), 2);
    assert_eq!(scene.session.number(&format!("{calls} 'VACUUM t'")), 1);
}

#[test]
fn it_works_before_another_module() {
    assert_both_work("stillpoint, pg_stat_statements");
}

#[test]
fn it_works_after_another_module() {
    assert_both_work("pg_stat_statements, stillpoint");
}

#[test]
fn autovacuum_leaves_the_ledger_alone_and_does_its_work() {
    let options = ClusterOptions::default()
        .setting("autovacuum = on")
        .setting("autovacuum_naptime = '1s'")
        .setting("autovacuum_vacuum_threshold = 0")
        .setting("autovacuum_vacuum_scale_factor = 0")
        .setting("log_autovacuum_min_duration = -1");
    let mut scene = Scene::with(options, T);
    let watch = scene.watch();
    scene.session.exec("DELETE FROM t WHERE id % 2 = 0");
    stillpoint_tests::wait_until(
        &mut scene.observer,
        "SELECT autovacuum_count > 0 FROM pg_stat_user_tables WHERE relname = 't'",
    );
    assert!(watch.entries(&mut scene.observer).is_empty());
    assert_eq!(scene.told(&["TRUNCATE t"]), whole("replaced", "t", "TRUNCATE TABLE"));
}
