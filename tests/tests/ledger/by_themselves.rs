//! Statements that have transactions of their own: VACUUM, CLUSTER of many tables, REINDEX of
//! many relations or CONCURRENTLY.

use stillpoint_tests::ledger::{Effect, Entry, Mark, Scope};

use crate::{Case, DATABASE, Scene, T, run_cases, sorted, whole, whole_kept};

const TWO: &str = "CREATE TABLE t (id int PRIMARY KEY, word text);
                   CREATE TABLE a (id int); INSERT INTO a VALUES (1)";

const PARTITIONS: &str = "CREATE TABLE p (id int) PARTITION BY RANGE (id);
                          CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
                          CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
                          CREATE INDEX p_id ON p (id)";

#[test]
fn a_vacuumed_table_is_told_with_its_indexes_and_toast() {
    let mut scene = Scene::new(T);
    for statement in [
        "VACUUM t",
        "VACUUM ANALYZE t",
        "VACUUM (ANALYZE, VERBOSE) t",
        "VACUUM FREEZE t",
        "VACUUM (FREEZE, DISABLE_PAGE_SKIPPING) t",
        "VACUUM (SKIP_LOCKED) t",
        "VACUUM (INDEX_CLEANUP on, TRUNCATE off) t",
        "VACUUM (PARALLEL 2) t",
        "VACUUM ANALYZE t (id, word)",
        "VACUUM (FULL off) t",
    ] {
        assert_eq!(scene.told(&[statement]), whole("pages", "t", "VACUUM"), "{statement}");
    }
}

#[test]
fn a_vacuum_is_an_interval_that_another_transaction_ends() {
    let mut scene = Scene::new(T);
    let watch = scene.watch();
    scene.session.exec("VACUUM t");
    let entries = watch.entries(&mut scene.observer);
    assert_eq!(entries.len(), 4, "{entries:?}");
    for entry in &entries {
        let end = entry.finished.expect("the work is done");
        assert!(end > entry.xid, "{entry:?}");
        assert_eq!((entries[0].xid, entries[0].finished), (entry.xid, entry.finished));
    }
}

#[test]
fn a_full_vacuum_keeps_the_rows_and_ends_with_each_table() {
    let mut scene = Scene::new(T);
    for statement in ["VACUUM FULL t", "VACUUM (FULL, ANALYZE) t", "VACUUM (FULL on, FREEZE) t"] {
        assert_eq!(scene.told(&[statement]), whole_kept("t", "VACUUM"), "{statement}");
    }
    scene.reset(TWO);
    let watch = scene.watch();
    scene.session.exec("VACUUM FULL t, a");
    let entries = watch.entries(&mut scene.observer);
    let end = |name: &str| {
        let entry = entries.iter().find(|entry| entry.name == name);
        entry.and_then(|entry| entry.finished).expect("the table is told and done")
    };
    assert_ne!(end("t"), end("a"), "each table has its transaction");
}

#[test]
fn every_variant_of_vacuum_is_told_exactly() {
    run_cases(&[
        Case {
            what: "a list",
            setup: TWO,
            statements: &["VACUUM t, a"],
            told: &[
                "pages a by VACUUM",
                "pages t by VACUUM",
                "pages t_pkey by VACUUM",
                "pages toast index of t by VACUUM",
                "pages toast of t by VACUUM",
            ],
        },
        Case {
            what: "the database",
            setup: TWO,
            statements: &["VACUUM"],
            told: &[
                "pages a by VACUUM",
                "pages t by VACUUM",
                "pages t_pkey by VACUUM",
                "pages toast index of t by VACUUM",
                "pages toast of t by VACUUM",
            ],
        },
        Case {
            what: "the database, in full",
            setup: TWO,
            statements: &["VACUUM FULL"],
            told: &[
                "replaced a by VACUUM, rows kept",
                "replaced t by VACUUM, rows kept",
                "replaced t_pkey by VACUUM",
                "replaced toast index of t by VACUUM",
                "replaced toast of t by VACUUM",
            ],
        },
        Case {
            what: "a partitioned table",
            setup: PARTITIONS,
            statements: &["VACUUM p"],
            told: &[
                "pages p1 by VACUUM",
                "pages p1_id_idx by VACUUM",
                "pages p2 by VACUUM",
                "pages p2_id_idx by VACUUM",
            ],
        },
        Case {
            what: "a partitioned table, in full",
            setup: PARTITIONS,
            statements: &["VACUUM (FULL) p"],
            told: &[
                "replaced p1 by VACUUM, rows kept",
                "replaced p1_id_idx by VACUUM",
                "replaced p2 by VACUUM, rows kept",
                "replaced p2_id_idx by VACUUM",
            ],
        },
        Case {
            what: "a materialized view",
            setup: "CREATE MATERIALIZED VIEW m AS SELECT 1 AS one",
            statements: &["VACUUM m"],
            told: &["pages m by VACUUM"],
        },
        Case {
            what: "a table of another access method",
            setup: "CREATE TABLE h (id int) USING heap2",
            statements: &["VACUUM h"],
            told: &["compacted h by VACUUM"],
        },
        Case {
            what: "a table of another access method, in full",
            setup: "CREATE TABLE h (id int) USING heap2",
            statements: &["VACUUM FULL h"],
            told: &["replaced h by VACUUM"],
        },
        Case {
            what: "only what is asked for",
            setup: TWO,
            statements: &[
                "SET stillpoint.record_vacuum = rewrites",
                "VACUUM t, a",
                "VACUUM FULL a",
                "RESET stillpoint.record_vacuum",
            ],
            told: &["replaced a by VACUUM, rows kept"],
        },
        Case {
            what: "another access method is told all the same",
            setup: "CREATE TABLE h (id int) USING heap2",
            statements: &[
                "SET stillpoint.record_vacuum = rewrites",
                "VACUUM h",
                "RESET stillpoint.record_vacuum",
            ],
            told: &["compacted h by VACUUM"],
        },
        Case {
            what: "nothing but statistics",
            setup: TWO,
            statements: &["ANALYZE t", "ANALYZE (VERBOSE) t, a", "ANALYZE"],
            told: &[],
        },
        Case {
            what: "nothing at all, since another holds the lock",
            setup: TWO,
            statements: &["VACUUM (ANALYZE) a"],
            told: &["pages a by VACUUM"],
        },
    ]);
}

#[test]
fn a_toast_table_is_vacuumed_by_its_own_name_or_not_at_all() {
    let mut scene = Scene::new(T);
    let name = scene
        .session
        .text("SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 't'::regclass");
    let told = scene.told(&[&format!("VACUUM {name}")]);
    assert_eq!(told, sorted(["pages toast of t by VACUUM", "pages toast index of t by VACUUM"]));
    if scene.cluster.major_version() >= 14 {
        let told = scene.told(&["VACUUM (PROCESS_TOAST off) t"]);
        assert_eq!(told, sorted(["pages t by VACUUM", "pages t_pkey by VACUUM"]));
    }
    if scene.cluster.major_version() >= 16 {
        let told = scene.told(&["VACUUM (PROCESS_MAIN off) t"]);
        let toast = ["pages toast of t by VACUUM", "pages toast index of t by VACUUM"];
        assert_eq!(told, sorted(toast));
        assert_eq!(scene.told(&["VACUUM (ONLY_DATABASE_STATS)"]), [""; 0]);
    }
}

#[test]
fn a_vacuum_that_skips_a_locked_table_may_tell_too_much_and_never_leaves_it_open() {
    let mut scene = Scene::new(T);
    let mut holder = scene.cluster.session(DATABASE);
    holder.exec("BEGIN; LOCK TABLE t");
    let watch = scene.watch();
    scene.cluster.allow_log("skipping vacuum of \"t\"");
    scene.session.exec("VACUUM (SKIP_LOCKED) t");
    holder.exec("COMMIT");
    let told = watch.told(&mut scene.observer);
    assert!(told.iter().all(|line| line.starts_with("pages ")), "{told:?}");
    assert_eq!(scene.open(), [""; 0]);
}

#[test]
fn every_clustered_table_is_told_and_no_other() {
    let mut scene = Scene::new(T);
    scene.session.exec(
        "CREATE TABLE u (id int PRIMARY KEY, word text);
         CREATE TABLE v (id int PRIMARY KEY, word text)",
    );
    scene.session.exec("ALTER TABLE t CLUSTER ON t_pkey; ALTER TABLE u CLUSTER ON u_pkey");
    let told = scene.told(&["CLUSTER"]);
    let expected = [whole_kept("t", "CLUSTER"), whole_kept("u", "CLUSTER")].concat();
    assert_eq!(told, sorted(expected));
}

#[test]
fn a_clustered_partitioned_table_is_told_by_its_partitions() {
    let mut scene = Scene::new(PARTITIONS);
    if scene.cluster.major_version() < 15 {
        return;
    }
    let told = scene.told(&["CLUSTER p USING p_id"]);
    let expected = [
        "replaced p1 by CLUSTER, rows kept",
        "replaced p1_id_idx by CLUSTER",
        "replaced p2 by CLUSTER, rows kept",
        "replaced p2_id_idx by CLUSTER",
    ];
    assert_eq!(told, expected);
}

#[test]
fn every_scope_of_reindex_is_told_exactly() {
    run_cases(&[
        Case {
            what: "a schema",
            setup: TWO,
            statements: &["REINDEX SCHEMA public"],
            told: &["replaced t_pkey by REINDEX", "replaced toast index of t by REINDEX"],
        },
        Case {
            what: "the database",
            setup: TWO,
            statements: &["REINDEX DATABASE postgres"],
            told: &["replaced t_pkey by REINDEX", "replaced toast index of t by REINDEX"],
        },
        Case {
            what: "the system's catalogs",
            setup: TWO,
            statements: &["REINDEX SYSTEM postgres"],
            told: &[],
        },
        Case {
            what: "a partitioned table",
            setup: PARTITIONS,
            statements: &["REINDEX TABLE p"],
            told: &["replaced p1_id_idx by REINDEX", "replaced p2_id_idx by REINDEX"],
        },
        Case {
            what: "a partitioned index",
            setup: PARTITIONS,
            statements: &["REINDEX INDEX p_id"],
            told: &["replaced p1_id_idx by REINDEX", "replaced p2_id_idx by REINDEX"],
        },
        Case {
            what: "a table, concurrently, whose indexes are others afterwards",
            setup: TWO,
            statements: &["REINDEX TABLE CONCURRENTLY t"],
            told: &["dropped t_pkey by REINDEX", "dropped toast index of t by REINDEX"],
        },
        Case {
            what: "an index, concurrently",
            setup: TWO,
            statements: &["REINDEX INDEX CONCURRENTLY t_pkey"],
            told: &["dropped t_pkey by REINDEX"],
        },
        Case {
            what: "a schema, concurrently",
            setup: TWO,
            statements: &["REINDEX SCHEMA CONCURRENTLY public"],
            told: &["dropped t_pkey by REINDEX", "dropped toast index of t by REINDEX"],
        },
        Case {
            what: "a partitioned table, concurrently",
            setup: PARTITIONS,
            statements: &["REINDEX TABLE CONCURRENTLY p"],
            told: &["dropped p1_id_idx by REINDEX", "dropped p2_id_idx by REINDEX"],
        },
        Case {
            what: "a table without indexes",
            setup: TWO,
            statements: &["REINDEX TABLE CONCURRENTLY a"],
            told: &[],
        },
    ]);
}

#[test]
fn indexes_are_built_anew_in_another_tablespace() {
    let mut scene = Scene::new(T);
    if scene.cluster.major_version() < 14 {
        return;
    }
    scene.cluster.create_tablespace("elsewhere");
    let told = scene.told(&["REINDEX (TABLESPACE elsewhere) TABLE t"]);
    assert!(told.contains(&"replaced t_pkey by REINDEX".to_owned()), "{told:?}");
    let told = scene.told(&["REINDEX (TABLESPACE pg_default, CONCURRENTLY) INDEX t_pkey"]);
    assert_eq!(told, ["dropped t_pkey by REINDEX"]);
}

#[test]
fn a_vacuum_of_the_database_tells_catalogs_too_and_shared_ones_as_shared() {
    let mut scene = Scene::new("");
    let mark = Mark::now(&mut scene.observer);
    scene.session.exec("VACUUM");
    let entries = Entry::since(&mut scene.observer, mark, Scope::Catalogs);
    let told = |name: &str| entries.iter().find(|entry| entry.name == name);
    let shared = told("pg_authid").expect("pg_authid is told");
    assert_eq!((shared.database, shared.tablespace), (0, 1664));
    let own = told("pg_class").expect("pg_class is told");
    assert_ne!(own.database, 0);
    assert!(entries.iter().all(|entry| entry.effect == Effect::Pages && entry.filenode != 0));
    let files = scene.observer.number(
        "SELECT count(*) FROM pg_class WHERE relkind IN ('r', 'm', 't', 'i') AND oid < 16384",
    );
    assert_eq!(entries.len() as i64, files);
}

#[test]
fn the_ledger_is_recorded_and_kept_when_it_is_itself_worked_on() {
    let mut scene = Scene::new(T);
    scene.cluster.create_tablespace("elsewhere");
    scene.session.exec("TRUNCATE t");
    let rows = "SELECT count(*) FROM stillpoint.invalidation WHERE relation_name = 't'";
    for statement in [
        "VACUUM stillpoint.invalidation",
        "VACUUM FULL stillpoint.invalidation",
        "REINDEX TABLE stillpoint.invalidation",
        "REINDEX TABLE CONCURRENTLY stillpoint.invalidation",
        "CLUSTER stillpoint.invalidation USING invalidation_finished_xid_idx",
        "ALTER TABLE stillpoint.invalidation SET TABLESPACE elsewhere",
        "ALTER TABLE ALL IN TABLESPACE elsewhere SET TABLESPACE pg_default",
        "VACUUM FULL",
    ] {
        let file = scene.session.text("SELECT pg_relation_filenode('stillpoint.invalidation')");
        let before = scene.session.number(rows);
        scene.session.exec(statement);
        assert!(scene.session.number(rows) >= before, "{statement}");
        let new = scene.session.text("SELECT pg_relation_filenode('stillpoint.invalidation')");
        let told = format!(
            "SELECT count(*) = 1 FROM stillpoint.invalidation
              WHERE filenode = {file} AND effect = 'replaced' AND replaced_by = {new}"
        );
        assert!(file == new || scene.session.yes(&told), "{statement}");
        let told = scene.told(&["TRUNCATE t"]);
        assert_eq!(told, whole("replaced", "t", "TRUNCATE TABLE"), "after {statement}");
    }
}
