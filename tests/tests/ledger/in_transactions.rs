//! Statements that run inside a transaction, each kind and its variants.

use stillpoint_tests::ledger::Mark;

use crate::{Case, Scene, T, run_cases, sorted, whole, whole_kept};

const SERIAL: &str = "CREATE TABLE s (id serial, other int GENERATED ALWAYS AS IDENTITY)";

const REFERENCES: &str = "CREATE TABLE a (id int PRIMARY KEY);
                          CREATE TABLE b (id int REFERENCES a);
                          CREATE TABLE c (id int)";

const PARTITIONS: &str = "CREATE TABLE p (id int) PARTITION BY RANGE (id);
                          CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
                          CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)
                              PARTITION BY RANGE (id);
                          CREATE TABLE p21 PARTITION OF p2 FOR VALUES FROM (10) TO (15);
                          CREATE INDEX p_id ON p (id)";

const CHILDREN: &str = "CREATE TABLE a (id int);
                        CREATE TABLE b () INHERITS (a);
                        CREATE TABLE c () INHERITS (b)";

const VIEW: &str = "CREATE MATERIALIZED VIEW m AS SELECT i FROM generate_series(1, 9) AS i;
                    CREATE UNIQUE INDEX m_i ON m (i)";

#[test]
fn a_truncated_table_is_told_with_its_indexes_and_toast() {
    let mut scene = Scene::new(T);
    assert_eq!(scene.told(&["TRUNCATE t"]), whole("replaced", "t", "TRUNCATE TABLE"));
}

#[test]
fn a_clustered_table_keeps_its_rows() {
    let mut scene = Scene::new(T);
    assert_eq!(scene.told(&["CLUSTER t USING t_pkey"]), whole_kept("t", "CLUSTER"));
    assert_eq!(scene.told(&["CLUSTER t"]), whole_kept("t", "CLUSTER"));
}

#[test]
fn a_dropped_table_is_told_with_its_indexes_and_toast() {
    let mut scene = Scene::new(T);
    assert_eq!(scene.told(&["DROP TABLE t"]), whole("dropped", "t", "DROP TABLE"));
}

#[test]
fn a_row_says_which_file_was_replaced_by_which_and_when() {
    let mut scene = Scene::new(T);
    let watch = scene.watch();
    let old = scene.session.text("SELECT pg_relation_filenode('t')");
    let start = scene.session.text("SELECT clock_timestamp()");
    let lsn = scene.session.text("SELECT pg_current_wal_insert_lsn()");
    scene.session.exec("BEGIN");
    let xid = scene.session.number("SELECT pg_current_xact_id()");
    scene.session.exec("TRUNCATE t");
    scene.session.exec("COMMIT");
    let new = scene.session.text("SELECT pg_relation_filenode('t')");
    let entries = watch.entries(&mut scene.observer);
    let entry = entries.iter().find(|entry| entry.name == "t").expect("t is told");
    assert_eq!(entry.filenode.to_string(), old);
    assert_eq!(entry.replaced_by.map(|file| file.to_string()), Some(new));
    assert_eq!((entry.xid as i64, entry.finished), (xid, Some(entry.xid)));
    let within = format!(
        "SELECT bool_and(recorded_at BETWEEN '{start}' AND clock_timestamp()
                         AND lsn BETWEEN '{lsn}' AND pg_current_wal_insert_lsn())
           FROM stillpoint.invalidation WHERE {}",
        watch.mark.since()
    );
    assert!(scene.session.yes(&within));
}

#[test]
fn a_truncation_is_announced_before_it_runs() {
    let mut scene = Scene::new(T);
    // Fired before the statement touches a table.
    scene.session.exec(
        "CREATE TABLE seen (name text, effect text, filenode oid, finished bool);
         CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             INSERT INTO seen
                 SELECT relation_name, effect, filenode, finished_xid = xid
                   FROM stillpoint.invalidation
                  WHERE xid = pg_current_xact_id() AND relation = 't'::regclass;
             RETURN NULL;
         END $$;
         CREATE TRIGGER look BEFORE TRUNCATE ON t EXECUTE FUNCTION look()",
    );
    let file = scene.session.text("SELECT pg_relation_filenode('t')");
    scene.session.exec("TRUNCATE t");
    let seen =
        scene.session.texts("SELECT concat_ws(' ', name, effect, filenode, finished) FROM seen");
    assert_eq!(seen, [format!("t announced {file} t")]);
}

#[test]
fn every_variant_of_truncate_is_told_exactly() {
    run_cases(&[
        Case {
            what: "restarted sequences",
            setup: SERIAL,
            statements: &["TRUNCATE s RESTART IDENTITY"],
            told: &[
                "replaced s by TRUNCATE TABLE",
                "replaced s_id_seq by TRUNCATE TABLE",
                "replaced s_other_seq by TRUNCATE TABLE",
            ],
        },
        Case {
            what: "continued sequences",
            setup: SERIAL,
            statements: &["TRUNCATE s CONTINUE IDENTITY"],
            told: &["replaced s by TRUNCATE TABLE"],
        },
        Case {
            what: "several tables",
            setup: REFERENCES,
            statements: &["TRUNCATE b, c"],
            told: &["replaced b by TRUNCATE TABLE", "replaced c by TRUNCATE TABLE"],
        },
        Case {
            what: "tables that reference the one named",
            setup: REFERENCES,
            statements: &["TRUNCATE a CASCADE"],
            told: &[
                "replaced a by TRUNCATE TABLE",
                "replaced a_pkey by TRUNCATE TABLE",
                "replaced b by TRUNCATE TABLE",
            ],
        },
        Case {
            what: "a partitioned table",
            setup: PARTITIONS,
            statements: &["TRUNCATE p"],
            told: &[
                "replaced p1 by TRUNCATE TABLE",
                "replaced p1_id_idx by TRUNCATE TABLE",
                "replaced p21 by TRUNCATE TABLE",
                "replaced p21_id_idx by TRUNCATE TABLE",
            ],
        },
        Case {
            what: "one partition",
            setup: PARTITIONS,
            statements: &["TRUNCATE p1"],
            told: &["replaced p1 by TRUNCATE TABLE", "replaced p1_id_idx by TRUNCATE TABLE"],
        },
        Case {
            what: "children",
            setup: CHILDREN,
            statements: &["TRUNCATE a"],
            told: &[
                "replaced a by TRUNCATE TABLE",
                "replaced b by TRUNCATE TABLE",
                "replaced c by TRUNCATE TABLE",
            ],
        },
        Case {
            what: "not the children",
            setup: CHILDREN,
            statements: &["TRUNCATE ONLY a"],
            told: &["replaced a by TRUNCATE TABLE"],
        },
        Case {
            what: "twice in one transaction",
            setup: CHILDREN,
            statements: &["BEGIN; TRUNCATE c; SAVEPOINT s; TRUNCATE c; COMMIT"],
            told: &["replaced c by TRUNCATE TABLE"],
        },
        Case {
            what: "the same table named twice",
            setup: CHILDREN,
            statements: &["TRUNCATE c, c"],
            told: &["replaced c by TRUNCATE TABLE"],
        },
        Case {
            what: "a table of another access method",
            setup: "CREATE TABLE h (id int) USING heap2",
            statements: &["TRUNCATE h"],
            told: &["replaced h by TRUNCATE TABLE"],
        },
        Case {
            what: "an unlogged table",
            setup: "CREATE UNLOGGED TABLE u (id int)",
            statements: &["TRUNCATE u"],
            told: &["replaced u by TRUNCATE TABLE"],
        },
    ]);
}

#[test]
fn every_variant_of_reindex_in_a_transaction_is_told_exactly() {
    run_cases(&[
        Case {
            what: "an index",
            setup: T,
            statements: &["REINDEX INDEX t_pkey"],
            told: &["replaced t_pkey by REINDEX"],
        },
        Case {
            what: "a table",
            setup: T,
            statements: &["REINDEX TABLE t"],
            told: &["replaced t_pkey by REINDEX", "replaced toast index of t by REINDEX"],
        },
        Case {
            what: "in a block",
            setup: T,
            statements: &["BEGIN; REINDEX (VERBOSE) TABLE t; COMMIT"],
            told: &["replaced t_pkey by REINDEX", "replaced toast index of t by REINDEX"],
        },
    ]);
}

#[test]
fn every_variant_of_refresh_is_told_exactly() {
    run_cases(&[
        Case {
            what: "a view of numbers",
            setup: VIEW,
            statements: &["REFRESH MATERIALIZED VIEW m"],
            told: &[
                "replaced m by REFRESH MATERIALIZED VIEW",
                "replaced m_i by REFRESH MATERIALIZED VIEW",
            ],
        },
        Case {
            what: "without data",
            setup: VIEW,
            statements: &["REFRESH MATERIALIZED VIEW m WITH NO DATA"],
            told: &[
                "replaced m by REFRESH MATERIALIZED VIEW",
                "replaced m_i by REFRESH MATERIALIZED VIEW",
            ],
        },
        Case {
            what: "with a TOAST table, which is another one afterwards",
            setup: "CREATE MATERIALIZED VIEW w AS SELECT i::text FROM generate_series(1, 9) AS i",
            statements: &["REFRESH MATERIALIZED VIEW w"],
            told: &[
                "replaced w by REFRESH MATERIALIZED VIEW",
                "dropped toast of w by REFRESH MATERIALIZED VIEW",
                "dropped toast index of w by REFRESH MATERIALIZED VIEW",
            ],
        },
        Case {
            what: "concurrently, which changes rows",
            setup: VIEW,
            statements: &["REFRESH MATERIALIZED VIEW CONCURRENTLY m"],
            told: &[],
        },
    ]);
}

#[test]
fn what_is_dropped_is_told_whatever_drops_it() {
    run_cases(&[
        Case {
            what: "an index",
            setup: "CREATE TABLE a (id int); CREATE INDEX i ON a (id)",
            statements: &["DROP INDEX i"],
            told: &["dropped i by DROP INDEX"],
        },
        Case {
            what: "an index, concurrently",
            setup: "CREATE TABLE a (id int); CREATE INDEX i ON a (id)",
            statements: &["DROP INDEX CONCURRENTLY i"],
            told: &["dropped i by DROP INDEX"],
        },
        Case {
            what: "a sequence",
            setup: "CREATE SEQUENCE q",
            statements: &["DROP SEQUENCE q"],
            told: &["dropped q by DROP SEQUENCE"],
        },
        Case {
            what: "a materialized view",
            setup: VIEW,
            statements: &["DROP MATERIALIZED VIEW m"],
            told: &["dropped m by DROP MATERIALIZED VIEW", "dropped m_i by DROP MATERIALIZED VIEW"],
        },
        Case {
            what: "partitions with their table",
            setup: PARTITIONS,
            statements: &["DROP TABLE p"],
            told: &[
                "dropped p1 by DROP TABLE",
                "dropped p1_id_idx by DROP TABLE",
                "dropped p21 by DROP TABLE",
                "dropped p21_id_idx by DROP TABLE",
            ],
        },
        Case {
            what: "a schema's tables",
            setup: "CREATE TABLE a (id serial)",
            statements: &["DROP SCHEMA public CASCADE; CREATE SCHEMA public"],
            told: &["dropped a by CREATE SCHEMA", "dropped a_id_seq by CREATE SCHEMA"],
        },
        Case {
            what: "a role's tables",
            setup: "DROP ROLE IF EXISTS owner; CREATE ROLE owner;
                    CREATE TABLE a (id int); ALTER TABLE a OWNER TO owner",
            statements: &["DROP OWNED BY owner"],
            told: &["dropped a by DROP OWNED"],
        },
        Case {
            what: "a table that was truncated before",
            setup: "CREATE TABLE a (id int)",
            statements: &["BEGIN; TRUNCATE a; DROP TABLE a; COMMIT"],
            told: &["dropped a by TRUNCATE TABLE"],
        },
    ]);
}

#[test]
fn what_replaces_no_file_is_not_told() {
    let mut scene = Scene::new(T);
    let told = scene.told(&[
        "CREATE TABLE a (id int PRIMARY KEY, word text)",
        "CREATE TABLE b AS SELECT * FROM t",
        "CREATE TABLE c AS TABLE t WITH NO DATA",
        "SELECT * INTO d FROM t",
        "CREATE MATERIALIZED VIEW m AS SELECT * FROM t",
        "CREATE INDEX t_word ON t (word)",
        "CREATE INDEX CONCURRENTLY t_word2 ON t (word)",
        "UPDATE t SET word = 'x'; DELETE FROM t WHERE id > 50",
        "COPY t FROM PROGRAM 'echo 1000,x' WITH (FORMAT csv)",
        "ANALYZE",
        "ANALYZE t",
        "ALTER TABLE t RENAME TO u; ALTER TABLE u RENAME TO t",
        "BEGIN; LOCK TABLE t; COMMIT",
        "CREATE VIEW v AS SELECT * FROM t; DROP VIEW v",
        "CREATE TABLE p (id int) PARTITION BY LIST (id); DROP TABLE p",
        "BEGIN; CREATE TABLE e (w text); TRUNCATE e; INSERT INTO e VALUES (1); DROP TABLE e; COMMIT",
        "BEGIN; CREATE TABLE f (id int PRIMARY KEY); TRUNCATE f; CLUSTER f USING f_pkey; COMMIT",
        "CREATE SEQUENCE q; SELECT setval('q', 5), nextval('q')",
        "CHECKPOINT",
    ]);
    assert_eq!(told, [""; 0]);
}

#[test]
fn temporary_tables_are_not_told() {
    let mut scene = Scene::new("");
    let told = scene.told(&[
        "CREATE TEMP TABLE a (id int PRIMARY KEY, word text); INSERT INTO a VALUES (1, 'x')",
        "TRUNCATE a",
        "VACUUM a",
        "VACUUM FULL a",
        "CLUSTER a USING a_pkey",
        "REINDEX TABLE a",
        "ALTER TABLE a ALTER id TYPE bigint",
        "DROP TABLE a",
        "CREATE TEMP TABLE b (word text) ON COMMIT DELETE ROWS",
        "BEGIN; INSERT INTO b VALUES ('x'); COMMIT",
        "BEGIN; CREATE TEMP TABLE c (word text) ON COMMIT DROP; INSERT INTO c VALUES ('x'); COMMIT",
        "DISCARD ALL",
    ]);
    assert_eq!(told, [""; 0]);
}

#[test]
fn actions_on_commit_do_no_harm_to_what_the_transaction_has_replaced() {
    let mut scene = Scene::new(T);
    let told = scene.told(&[
        "CREATE TEMP TABLE b (word text) ON COMMIT DELETE ROWS",
        "BEGIN;
         CREATE TEMP TABLE c (word text) ON COMMIT DROP;
         INSERT INTO b VALUES ('x'); INSERT INTO c VALUES ('x');
         TRUNCATE t;
         COMMIT",
    ]);
    assert_eq!(told, whole("replaced", "t", "TRUNCATE TABLE"));
}

#[test]
fn a_rolled_back_transaction_leaves_no_row() {
    let mut scene = Scene::new(T);
    let told = scene.told(&["BEGIN; TRUNCATE t; CLUSTER t USING t_pkey; DROP TABLE t; ROLLBACK"]);
    assert_eq!(told, [""; 0]);
    let mark = Mark::now(&mut scene.observer);
    scene.cluster.allow_log("division by zero");
    assert!(scene.session.try_exec("TRUNCATE t; SELECT 1 / 0").is_err());
    let rows = format!("SELECT count(*) FROM stillpoint.invalidation WHERE {}", mark.since());
    assert_eq!(scene.observer.number(&rows), 0);
}

#[test]
fn transactions_that_may_only_read_and_serializable_ones_are_recorded_too() {
    let mut scene = Scene::new(T);
    let told = scene.told(&["SET default_transaction_read_only = on", "CLUSTER t USING t_pkey"]);
    assert_eq!(told, whole_kept("t", "CLUSTER"));
    assert_eq!(scene.told(&["VACUUM t"]), whole("pages", "t", "VACUUM"));
    let told = scene.told(&[
        "SET default_transaction_read_only = off",
        "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM t; TRUNCATE t; COMMIT",
    ]);
    assert_eq!(told, whole("replaced", "t", "TRUNCATE TABLE"));
}

#[test]
fn a_transaction_with_an_old_snapshot_records_what_others_have_changed_meanwhile() {
    let mut scene = Scene::new(T);
    scene.session.exec("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    scene.observer.exec("TRUNCATE t");
    let watch = scene.watch();
    scene.session.exec("TRUNCATE t");
    scene.session.exec("COMMIT");
    assert_eq!(watch.told(&mut scene.observer), whole("replaced", "t", "TRUNCATE TABLE"));
}

#[test]
fn two_sessions_that_replace_the_same_table_in_turn_make_a_chain() {
    let mut scene = Scene::new("CREATE TABLE a (id int)");
    let mut other = scene.cluster.session(crate::DATABASE);
    let watch = scene.watch();
    scene.session.exec("TRUNCATE a");
    other.exec("TRUNCATE a");
    let entries = watch.entries(&mut scene.observer);
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert_eq!(entries[0].replaced_by, Some(entries[1].filenode));
}

#[test]
fn a_statement_of_many_kinds_has_the_last_commands_tag_for_what_was_not_announced() {
    let mut scene = Scene::new("CREATE TABLE a (id int); CREATE TABLE b (id int)");
    let told = scene.told(&["BEGIN; ALTER TABLE a ALTER id TYPE bigint; TRUNCATE b; COMMIT"]);
    let expected = ["replaced a by TRUNCATE TABLE", "replaced b by TRUNCATE TABLE"];
    assert_eq!(told, sorted(expected));
}

#[test]
fn an_index_has_the_tag_of_the_statement_that_was_about_its_table() {
    let mut scene = Scene::new("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int)");
    let told = scene.told(&["BEGIN; TRUNCATE a; ALTER TABLE b ALTER id TYPE bigint; COMMIT"]);
    let expected = [
        "replaced a by TRUNCATE TABLE",
        "replaced a_pkey by TRUNCATE TABLE",
        "replaced b by ALTER TABLE",
    ];
    assert_eq!(told, sorted(expected));
}

#[test]
fn an_index_has_not_the_tag_of_a_statement_that_was_rolled_back() {
    let mut scene = Scene::new("CREATE TABLE a (id int PRIMARY KEY)");
    let told = scene.told(&["BEGIN; SAVEPOINT s; TRUNCATE a; ROLLBACK TO s; \
         ALTER TABLE a ALTER id TYPE bigint; COMMIT"]);
    let expected = ["dropped a_pkey by ALTER TABLE", "replaced a by ALTER TABLE"];
    assert_eq!(told, sorted(expected));
}
