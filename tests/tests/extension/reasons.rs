//! Every reason, by its name.

use stillpoint_tests::{Cluster, wait_until};

use crate::{Race, begin, changes, refusal};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, word text);
                     INSERT INTO t SELECT i, i FROM generate_series(1, 100) AS i";

const PARTITIONS: &str = "CREATE TABLE p (id int) PARTITION BY RANGE (id);
                          CREATE TABLE t PARTITION OF p FOR VALUES FROM (0) TO (100);
                          CREATE TABLE root (id int, word text)";

/// What is committed after the snapshot, and what the transaction is then told of `t`, which it
/// has locked by the name.
struct Case {
    what: &'static str,
    setup: &'static str,
    statements: &'static [&'static str],
    reasons: &'static str,
}

const CASES: &[Case] = &[
    Case { what: "nothing", setup: TABLE, statements: &[], reasons: "" },
    Case {
        what: "rows, indexes, statistics, privileges, comments, checks",
        setup: TABLE,
        statements: &[
            "UPDATE t SET word = 'x'; DELETE FROM t WHERE id > 50; INSERT INTO t VALUES (999, 'y')",
            "VACUUM ANALYZE t",
            "CREATE INDEX ON t (word)",
            "REINDEX TABLE t",
            "CREATE STATISTICS s ON id, word FROM t",
            "GRANT SELECT ON t TO PUBLIC",
            "COMMENT ON TABLE t IS 'words'",
            "ALTER TABLE t ADD CHECK (id > 0) NOT VALID, ALTER word SET STATISTICS 500",
        ],
        reasons: "",
    },
    Case {
        what: "a truncation",
        setup: TABLE,
        statements: &["TRUNCATE t; INSERT INTO t VALUES (1, 'x')"],
        reasons: "replaced",
    },
    Case { what: "VACUUM FULL", setup: TABLE, statements: &["VACUUM FULL t"], reasons: "replaced" },
    Case {
        what: "CLUSTER",
        setup: TABLE,
        statements: &["CLUSTER t USING t_pkey"],
        reasons: "replaced",
    },
    Case {
        what: "another persistence",
        setup: TABLE,
        statements: &["ALTER TABLE t SET UNLOGGED"],
        reasons: "replaced",
    },
    Case {
        what: "a type change that rewrites",
        setup: TABLE,
        statements: &["ALTER TABLE t ALTER word TYPE int USING word::int"],
        reasons: "replaced, redefined",
    },
    Case {
        what: "a new column with a volatile default",
        setup: TABLE,
        statements: &["ALTER TABLE t ADD score float8 DEFAULT random()"],
        reasons: "replaced, redefined",
    },
    Case {
        what: "a new generated column",
        setup: TABLE,
        statements: &["ALTER TABLE t ADD length int GENERATED ALWAYS AS (1) STORED"],
        reasons: "replaced, redefined",
    },
    Case {
        what: "a new column with a constant default",
        setup: TABLE,
        statements: &["ALTER TABLE t ADD score int DEFAULT 5"],
        reasons: "redefined",
    },
    Case {
        what: "a dropped column",
        setup: TABLE,
        statements: &["ALTER TABLE t DROP word"],
        reasons: "redefined",
    },
    Case {
        what: "the only column dropped",
        setup: "CREATE TABLE t (id int)",
        statements: &["ALTER TABLE t DROP id"],
        reasons: "redefined",
    },
    Case {
        what: "the first column of a table without columns",
        setup: "CREATE TABLE t ()",
        statements: &["ALTER TABLE t ADD id int"],
        reasons: "redefined",
    },
    Case {
        what: "a renamed column",
        setup: TABLE,
        statements: &["ALTER TABLE t RENAME word TO name"],
        reasons: "redefined",
    },
    Case {
        what: "a widened type",
        setup: "CREATE TABLE t (word varchar(5))",
        statements: &["ALTER TABLE t ALTER word TYPE varchar(9)"],
        reasons: "redefined",
    },
    Case {
        what: "a column split in two, with a name that looks like two",
        setup: r#"CREATE TABLE t ("a', 2 23 -1 f  'b" int)"#,
        statements: &[r#"ALTER TABLE t RENAME "a', 2 23 -1 f  'b" TO a; ALTER TABLE t ADD b int"#],
        reasons: "redefined",
    },
    Case {
        what: "dropped and created anew",
        setup: TABLE,
        statements: &["DROP TABLE t; CREATE TABLE t (id int)"],
        reasons: "dropped, recreated",
    },
    Case {
        what: "a rename swap",
        setup: "CREATE TABLE t (); CREATE TABLE t_new ()",
        statements: &["ALTER TABLE t RENAME TO t_old; ALTER TABLE t_new RENAME TO t"],
        reasons: "renamed, recreated",
    },
    Case {
        what: "renamed away and back",
        setup: TABLE,
        statements: &["ALTER TABLE t RENAME TO x", "ALTER TABLE x RENAME TO t"],
        reasons: "",
    },
    Case {
        what: "moved to another schema, and another made in its place",
        setup: "CREATE TABLE t (); CREATE SCHEMA archive",
        statements: &["ALTER TABLE t SET SCHEMA archive; CREATE TABLE t (id int)"],
        reasons: "renamed, recreated",
    },
    Case {
        what: "attached to a parent",
        setup: "CREATE TABLE p (id int) PARTITION BY LIST (id); CREATE TABLE t (id int)",
        statements: &["ALTER TABLE p ATTACH PARTITION t FOR VALUES IN (1)"],
        reasons: "attached",
    },
    Case {
        what: "detached from a parent",
        setup: PARTITIONS,
        statements: &["ALTER TABLE p DETACH PARTITION t"],
        reasons: "detached",
    },
    Case {
        what: "all at once",
        setup: PARTITIONS,
        statements: &[
            "ALTER TABLE p DETACH PARTITION t",
            "TRUNCATE t; ALTER TABLE t ADD word text; ALTER TABLE t INHERIT root",
        ],
        reasons: "replaced, redefined, attached, detached",
    },
];

#[test]
fn each_change_is_told_by_its_reasons() {
    let mut race = Race::begin("");
    let mut wrong = Vec::new();
    for case in CASES {
        race.begin_again(case.setup);
        race.commit(case.statements);
        race.lock("t");
        let reasons = race.reasons("t");
        if reasons != case.reasons {
            wrong.push(format!("{}: {:?}, not {:?}", case.what, reasons, case.reasons));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_dropped_relation_is_dropped_and_needs_no_lock() {
    let mut race = Race::begin(TABLE);
    let filenode = race.other.number("SELECT relfilenode FROM pg_class WHERE relname = 't'");
    race.commit(&["DROP TABLE t"]);
    let mut changes = race.changes(&["t"]);
    let change = changes.pop().expect("it has changed");
    assert_eq!(change.name, "public.t");
    assert_eq!(change.reasons, "dropped");
    assert!(!change.rows_kept);
    assert_eq!(i64::from(change.filenode_snapshot), filenode);
    assert_eq!(change.filenode_latest, None);
    assert!(change.ancestors.is_empty());
    assert!(changes.is_empty());
}

#[test]
fn a_renamed_relation_is_renamed_and_needs_no_lock() {
    let mut race = Race::begin(TABLE);
    race.commit(&["ALTER TABLE t RENAME TO t_old"]);
    let changes = race.changes(&["t"]);
    assert_eq!(changes[0].reasons, "renamed");
    assert_eq!(changes[0].name, "public.t", "the name is the snapshot's");
    assert_eq!(changes[0].filenode_latest, Some(changes[0].filenode_snapshot));
}

#[test]
fn two_relations_that_swap_their_names_are_both_named() {
    let mut race = Race::begin("CREATE TABLE a (); CREATE TABLE b ()");
    race.commit(&[
        "ALTER TABLE a RENAME TO x; ALTER TABLE b RENAME TO a; ALTER TABLE x RENAME TO b",
    ]);
    let changes = race.changes(&["a", "b"]);
    let told: Vec<_> = changes.iter().map(|c| (c.name.as_str(), c.reasons.as_str())).collect();
    let reasons = "renamed, recreated";
    assert_eq!(told, [("public.a", reasons), ("public.b", reasons)]);
}

#[test]
fn a_renamed_schema_renames_what_is_in_it_even_under_a_lock() {
    let setup = "CREATE SCHEMA a; CREATE SCHEMA b; CREATE TABLE a.t (); CREATE TABLE b.t ()";
    let mut race = Race::begin(setup);
    race.lock("a.t");
    race.commit(&["ALTER SCHEMA a RENAME TO a_old; ALTER SCHEMA b RENAME TO a"]);
    assert_eq!(race.reasons("a.t"), "renamed, recreated");
}

#[test]
fn a_partition_whose_concurrent_detaching_waits_for_us_is_detached() {
    let mut race = Race::begin(PARTITIONS);
    // The second step waits for every older snapshot to end, ours among them.
    race.lock("t");
    let detaching = race.cluster.session(crate::DATABASE);
    let detaching = detaching.start("ALTER TABLE p DETACH PARTITION t CONCURRENTLY");
    wait_until(&mut race.other, "SELECT bool_or(inhdetachpending) FROM pg_inherits");
    assert_eq!(race.reasons("t"), "detached");
    race.dump.exec("COMMIT");
    drop(detaching.finish());
}

#[test]
fn a_detached_and_dropped_partition_is_dropped() {
    let mut race = Race::begin(PARTITIONS);
    race.commit(&["ALTER TABLE p DETACH PARTITION t; DROP TABLE t"]);
    assert_eq!(race.reasons("t"), "dropped");
}

#[test]
fn a_refreshed_materialized_view_is_replaced() {
    let mut race = Race::begin("CREATE MATERIALIZED VIEW m AS SELECT 1 AS one");
    race.commit(&["REFRESH MATERIALIZED VIEW m"]);
    race.dump.exec("SELECT FROM m LIMIT 0");
    assert_eq!(race.reasons("m"), "replaced");
}

#[test]
fn a_relation_without_storage_keeps_filenode_0() {
    let mut race = Race::begin(PARTITIONS);
    race.commit(&["ALTER TABLE p ADD word text"]);
    race.lock("p");
    let changes = race.changes(&["p"]);
    assert_eq!(changes[0].reasons, "redefined");
    assert_eq!((changes[0].filenode_snapshot, changes[0].filenode_latest), (0, Some(0)));
}

#[test]
fn the_transactions_own_changes_are_no_difference() {
    let mut race = Race::begin(TABLE);
    let oid = race.oid("t");
    race.dump.exec("TRUNCATE t; ALTER TABLE t ADD score int; ALTER TABLE t RENAME TO mine");
    assert_eq!(changes(&mut race.dump, &[oid]), []);
}

#[test]
fn only_what_has_changed_is_told_and_told_once() {
    let mut race = Race::begin("CREATE TABLE a (); CREATE TABLE b (); CREATE TABLE c ()");
    race.commit(&["TRUNCATE b"]);
    for table in ["a", "b", "c"] {
        race.lock(table);
    }
    let changes = race.changes(&["a", "b", "c", "b", "a", "b"]);
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(changes[0].name, "public.b");
}

#[test]
fn names_of_any_form_come_back_as_they_are() {
    let setup = r#"CREATE SCHEMA "Zwei Wörter"; CREATE TABLE "Zwei Wörter"."a ""b"" 'c' 表
" ()"#;
    let mut race = Race::begin(setup);
    race.commit(&[r#"DROP SCHEMA "Zwei Wörter" CASCADE"#]);
    let changes = race.changes(&["Zwei Wörter.a \"b\" 'c' 表\n"]);
    assert_eq!(changes[0].name, "Zwei Wörter.a \"b\" 'c' 表\n");
    assert_eq!(changes[0].reasons, "dropped");
}

#[test]
fn names_come_back_as_they_are_in_databases_of_other_encodings() {
    let cluster = Cluster::preloaded();
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let database = encoding.to_lowercase();
        cluster.session("postgres").exec(&format!(
            "CREATE DATABASE {database} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
        ));
        cluster.create_extension(&database);
        let mut other = cluster.session(&database);
        other.exec(r#"CREATE TABLE "café" (); CREATE TABLE "thé" ()"#);
        let mut dump = cluster.session(&database);
        begin(&mut dump);
        let table = dump.number("SELECT 'café'::regclass::oid");
        let call = format!("SELECT stillpoint.changed_relations('{{{table}}}')");
        let error = refusal(&cluster, &mut dump, &call);
        assert!(error.message().starts_with("relation \"public.caf?"), "{encoding}: {error}");
        dump.exec("ROLLBACK");
        begin(&mut dump);
        other.exec(r#"ALTER TABLE "café" RENAME TO x; ALTER TABLE "thé" RENAME TO "café""#);
        let changes = changes(&mut dump, &[u32::try_from(table).expect("an OID")]);
        assert_eq!(changes[0].name, "public.café", "{encoding}");
        assert_eq!(changes[0].reasons, "renamed, recreated", "{encoding}");
    }
}

#[test]
fn shared_relations_are_answered_for_too() {
    let mut race = Race::begin("");
    race.dump.exec("LOCK TABLE pg_catalog.pg_database IN ACCESS SHARE MODE");
    assert_eq!(race.reasons("pg_catalog.pg_database"), "");
}
