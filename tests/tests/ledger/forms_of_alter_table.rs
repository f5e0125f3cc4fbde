//! ALTER: the forms that replace storage, and those that do not.

use crate::{Case, Scene, run_cases};

/// Without a TOAST table: what becomes of those is told elsewhere.
const NUMBERS: &str = "CREATE TABLE a (id int PRIMARY KEY, n int);
                       INSERT INTO a SELECT i, i FROM generate_series(1, 20) AS i";

const WORDS: &str = "CREATE TABLE w (word text); INSERT INTO w VALUES ('x')";

#[test]
fn a_tablespace_an_access_method_and_the_log_are_told_when_they_change() {
    let mut cases = vec![
        Case {
            what: "a table to another tablespace, without its indexes",
            setup: NUMBERS,
            statements: &["ALTER TABLE a SET TABLESPACE elsewhere"],
            told: &["replaced a by ALTER TABLE"],
        },
        Case {
            what: "a TOAST table goes with its table",
            setup: WORDS,
            statements: &["ALTER TABLE w SET TABLESPACE elsewhere"],
            told: &[
                "replaced w by ALTER TABLE",
                "replaced toast of w by ALTER TABLE",
                "replaced toast index of w by ALTER TABLE",
            ],
        },
        Case {
            what: "to the tablespace where it is",
            setup: NUMBERS,
            statements: &["ALTER TABLE a SET TABLESPACE pg_default"],
            told: &[],
        },
        Case {
            what: "an index",
            setup: NUMBERS,
            statements: &["ALTER INDEX a_pkey SET TABLESPACE elsewhere"],
            told: &["replaced a_pkey by ALTER INDEX"],
        },
        Case {
            what: "a materialized view",
            setup: "CREATE MATERIALIZED VIEW m AS SELECT 1 AS one",
            statements: &["ALTER MATERIALIZED VIEW m SET TABLESPACE elsewhere"],
            told: &["replaced m by ALTER MATERIALIZED VIEW"],
        },
        Case {
            what: "a partitioned table, which has no file",
            setup: "CREATE TABLE p (id int) PARTITION BY LIST (id);
                    CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)",
            statements: &["ALTER TABLE p SET TABLESPACE elsewhere"],
            told: &[],
        },
        Case {
            what: "all tables of a tablespace",
            setup: "CREATE TABLE a (id int) TABLESPACE elsewhere;
                    CREATE TABLE b (id int) TABLESPACE elsewhere;
                    CREATE TABLE c (id int)",
            statements: &["ALTER TABLE ALL IN TABLESPACE elsewhere SET TABLESPACE pg_default"],
            told: &["replaced a by ALTER TABLE", "replaced b by ALTER TABLE"],
        },
        Case {
            what: "all tables of a role in a tablespace",
            setup: "DROP ROLE IF EXISTS one; CREATE ROLE one;
                    CREATE TABLE a (id int) TABLESPACE elsewhere; ALTER TABLE a OWNER TO one;
                    CREATE TABLE b (id int) TABLESPACE elsewhere",
            statements: &[
                "ALTER TABLE ALL IN TABLESPACE elsewhere OWNED BY one SET TABLESPACE pg_default",
            ],
            told: &["replaced a by ALTER TABLE"],
        },
        Case {
            what: "all indexes of a tablespace",
            setup: "CREATE TABLE a (id int);
                    CREATE INDEX a_id ON a (id) TABLESPACE elsewhere",
            statements: &["ALTER INDEX ALL IN TABLESPACE elsewhere SET TABLESPACE pg_default"],
            told: &["replaced a_id by ALTER INDEX"],
        },
        Case {
            what: "all materialized views of a tablespace",
            setup: "CREATE MATERIALIZED VIEW m TABLESPACE elsewhere AS SELECT 1 AS one",
            statements: &[
                "ALTER MATERIALIZED VIEW ALL IN TABLESPACE elsewhere SET TABLESPACE pg_default",
            ],
            told: &["replaced m by ALTER MATERIALIZED VIEW"],
        },
        Case {
            what: "a table that is logged no more",
            setup: NUMBERS,
            statements: &["ALTER TABLE a SET UNLOGGED"],
            told: &["replaced a by ALTER TABLE", "replaced a_pkey by ALTER TABLE"],
        },
        Case {
            what: "a table that is logged again",
            setup: "CREATE UNLOGGED TABLE u (id int)",
            statements: &["ALTER TABLE u SET LOGGED"],
            told: &["replaced u by ALTER TABLE"],
        },
        Case {
            what: "a table that was logged all along",
            setup: NUMBERS,
            statements: &["ALTER TABLE a SET LOGGED"],
            told: &[],
        },
        Case {
            what: "both ways in one transaction",
            setup: "CREATE TABLE a (id int)",
            statements: &["BEGIN; ALTER TABLE a SET UNLOGGED; ALTER TABLE a SET LOGGED; COMMIT"],
            told: &["replaced a by ALTER TABLE"],
        },
    ];
    let scene = Scene::new("");
    if scene.cluster.major_version() >= 15 {
        cases.extend([
            Case {
                what: "another access method",
                setup: "CREATE TABLE a (id int)",
                statements: &["ALTER TABLE a SET ACCESS METHOD heap2"],
                told: &["replaced a by ALTER TABLE"],
            },
            Case {
                what: "the access method that it has",
                setup: "CREATE TABLE a (id int)",
                statements: &["ALTER TABLE a SET ACCESS METHOD heap"],
                told: &[],
            },
        ]);
    }
    drop(scene);
    run_cases(&cases);
}

#[test]
fn other_forms_are_told_when_they_rewrite() {
    run_cases(&[
        Case {
            what: "the type of a column that is in no index",
            setup: NUMBERS,
            statements: &["ALTER TABLE a ALTER n TYPE bigint"],
            told: &["replaced a by ALTER TABLE", "replaced a_pkey by ALTER TABLE"],
        },
        Case {
            what: "the type of a column in an index, which is another one afterwards",
            setup: NUMBERS,
            statements: &["ALTER TABLE a ALTER id TYPE bigint"],
            told: &["replaced a by ALTER TABLE", "dropped a_pkey by ALTER TABLE"],
        },
        Case {
            what: "a type that needs no rewrite",
            setup: "CREATE TABLE a (word varchar(10))",
            statements: &["ALTER TABLE a ALTER word TYPE varchar(20)"],
            told: &[],
        },
        Case {
            what: "a type that needs no rewrite, with indexes that are made anew on the old files",
            setup: "CREATE TABLE a (word varchar(10) PRIMARY KEY); CREATE INDEX a_i ON a (word, word)",
            statements: &["ALTER TABLE a ALTER word TYPE varchar(20)"],
            told: &[],
        },
        Case {
            what: "the same beside an index that goes",
            setup: "CREATE TABLE a (word varchar(10) PRIMARY KEY); CREATE INDEX a_i ON a (word)",
            statements: &[
                "BEGIN; DROP INDEX a_i; ALTER TABLE a ALTER word TYPE varchar(20); COMMIT",
            ],
            told: &["dropped a_i by ALTER TABLE"],
        },
        Case {
            what: "a rewrite with a TOAST table, which is another one afterwards",
            setup: WORDS,
            statements: &["ALTER TABLE w ADD COLUMN chance float8 DEFAULT random()"],
            told: &[
                "replaced w by ALTER TABLE",
                "dropped toast of w by ALTER TABLE",
                "dropped toast index of w by ALTER TABLE",
            ],
        },
        Case {
            what: "columns, checks and statistics that need none",
            setup: NUMBERS,
            statements: &[
                "ALTER TABLE a ADD COLUMN five int DEFAULT 5, ADD CHECK (n > 0)",
                "ALTER TABLE a DROP COLUMN five",
                "ALTER TABLE a ALTER n SET STATISTICS 500, ALTER n SET NOT NULL",
                "ALTER TABLE a CLUSTER ON a_pkey",
                "ALTER TABLE a SET (fillfactor = 70)",
            ],
            told: &[],
        },
        Case {
            what: "children with their parent",
            setup: "CREATE TABLE a (id int); CREATE TABLE b () INHERITS (a)",
            statements: &["ALTER TABLE a ALTER id TYPE bigint"],
            told: &["replaced a by ALTER TABLE", "replaced b by ALTER TABLE"],
        },
        Case {
            what: "several forms at once",
            setup: "CREATE TABLE a (id int)",
            statements: &["ALTER TABLE a ALTER id TYPE bigint, SET UNLOGGED"],
            told: &["replaced a by ALTER TABLE"],
        },
        Case {
            what: "a sequence that is restarted",
            setup: "CREATE SEQUENCE q",
            statements: &["ALTER SEQUENCE q RESTART"],
            told: &["replaced q by ALTER SEQUENCE"],
        },
        Case {
            what: "a constraint's index that goes with it",
            setup: NUMBERS,
            statements: &["ALTER TABLE a DROP CONSTRAINT a_pkey"],
            told: &["dropped a_pkey by ALTER TABLE"],
        },
        Case {
            what: "partitions that come and go",
            setup: "CREATE TABLE p (id int) PARTITION BY LIST (id);
                    CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
                    CREATE TABLE p2 (id int)",
            statements: &[
                "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES IN (2)",
                "ALTER TABLE p DETACH PARTITION p1",
            ],
            told: &[],
        },
    ]);
}

#[test]
fn a_storage_that_alter_table_replaces_is_announced_before() {
    let mut scene = Scene::new(NUMBERS);
    scene.cluster.create_tablespace("elsewhere");
    // Event triggers fire before the statement does anything.
    scene.session.exec(
        "CREATE TABLE seen (tag text, names text);
         CREATE FUNCTION look() RETURNS event_trigger LANGUAGE plpgsql AS $$
         BEGIN
             INSERT INTO seen
                 SELECT tg_tag, string_agg(relation_name, ' ' ORDER BY relation_name)
                   FROM stillpoint.invalidation
                  WHERE xid = pg_current_xact_id() AND effect = 'announced';
         END $$;
         CREATE EVENT TRIGGER look ON ddl_command_start EXECUTE FUNCTION look()",
    );
    for (statement, names) in [
        ("ALTER TABLE a SET TABLESPACE elsewhere", "a"),
        ("ALTER TABLE a SET UNLOGGED", "a"),
        ("ALTER TABLE a SET LOGGED", "a"),
        ("ALTER INDEX a_pkey SET TABLESPACE elsewhere", "a_pkey"),
    ] {
        scene.session.exec("TRUNCATE seen");
        scene.session.exec(statement);
        let seen = scene.session.texts("SELECT names FROM seen WHERE names IS NOT NULL");
        assert_eq!(seen, [names], "{statement}");
    }
}
