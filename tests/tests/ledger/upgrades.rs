//! From the version without a ledger to this one.

use stillpoint_tests::{ClusterOptions, psql};

use crate::{DATABASE, Scene, T, whole};

/// A cluster with this library and the SQL of 0.1.0.
fn first_version() -> Scene {
    let cluster = ClusterOptions::default().preload().start();
    let mut session = cluster.session(DATABASE);
    session.exec("CREATE EXTENSION stillpoint VERSION '0.1.0'");
    session.exec(T);
    let observer = cluster.session(DATABASE);
    Scene { session, observer, cluster }
}

#[test]
fn the_first_versions_sql_records_nothing_and_hinders_nothing() {
    let mut scene = first_version();
    for statement in ["TRUNCATE t", "VACUUM t", "VACUUM FULL t", "ALTER TABLE t SET UNLOGGED"] {
        scene.session.exec(statement);
    }
    assert!(!scene.session.yes("SELECT to_regclass('stillpoint.invalidation') IS NOT NULL"));
}

#[test]
fn an_update_begins_to_record() {
    let mut scene = first_version();
    scene.session.exec("TRUNCATE t");
    let before = scene.session.text("SELECT clock_timestamp()");
    scene.session.exec("ALTER EXTENSION stillpoint UPDATE");
    let version = "SELECT extversion FROM pg_extension WHERE extname = 'stillpoint'";
    assert_eq!(scene.session.text(version), env!("CARGO_PKG_VERSION"));
    assert_eq!(scene.session.number("SELECT count(*) FROM stillpoint.invalidation"), 0);
    let since = format!("SELECT complete_since >= '{before}' FROM stillpoint.status()");
    assert!(scene.session.yes(&since));
    assert_eq!(scene.told(&["TRUNCATE t"]), whole("replaced", "t", "TRUNCATE TABLE"));
    assert_eq!(scene.told(&["VACUUM t"]), whole("pages", "t", "VACUUM"));
}

#[test]
fn an_updated_extension_is_the_same_as_a_new_one() {
    const OBJECTS: &str = "
        SELECT pg_describe_object(classid, objid, objsubid) FROM pg_depend
         WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
           AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'stillpoint')
         UNION ALL
        SELECT concat_ws(' ', attrelid::regclass, attnum, attname, atttypid::regtype, attnotnull)
          FROM pg_attribute WHERE attnum > 0 AND attrelid IN
               (SELECT oid FROM pg_class WHERE relnamespace = 'stillpoint'::regnamespace)
         UNION ALL
        SELECT concat_ws(' ', relname, relkind, relreplident, relacl, relpersistence)
          FROM pg_class WHERE relnamespace = 'stillpoint'::regnamespace
         UNION ALL
        SELECT concat_ws(' ', oid::regprocedure, provolatile, proparallel, prosecdef, proisstrict,
                         proconfig, proacl, obj_description(oid, 'pg_proc'))
          FROM pg_proc WHERE pronamespace = 'stillpoint'::regnamespace
         ORDER BY 1";
    let mut updated = first_version();
    updated.session.exec("ALTER EXTENSION stillpoint UPDATE");
    let mut new = Scene::new("");
    assert_eq!(updated.session.texts(OBJECTS), new.session.texts(OBJECTS));
}

#[test]
fn an_update_without_the_library_preloaded_warns() {
    let cluster = stillpoint_tests::Cluster::start();
    cluster.session(DATABASE).exec("CREATE EXTENSION stillpoint VERSION '0.1.0'");
    cluster.allow_log("is not preloaded");
    let finished = psql(&cluster, DATABASE).args(["-c", "ALTER EXTENSION stillpoint UPDATE"]).run();
    finished.assert_exit(0).assert_stderr("WARNING:  ").assert_stderr("HINT:  ");
}
