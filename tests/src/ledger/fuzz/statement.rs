//! The statements of the fuzz, and the relations that they are about.

use crate::random::Random;

use super::TABLESPACE;

/// How many tables a lane makes, drops and changes.
const TABLES: u32 = 5;

/// A random statement.
pub(crate) struct Statement {
    pub(crate) sql: String,
    /// A relation that must have been announced when the statement has replaced its file.
    pub(crate) announces: Option<String>,
}

/// A random statement that has transactions of its own.
pub(crate) struct Alone {
    pub(crate) sql: String,
    /// A table for whose lock it waits when it has been announced.
    pub(crate) table: String,
    /// What has been announced when it waits.
    pub(crate) announced: String,
    /// Whether it leaves every file where it is.
    pub(crate) in_place: bool,
}

/// All statements that make a lane's schema.
pub(crate) fn schema(schema: &str) -> Vec<String> {
    let mut statements = vec![
        format!("CREATE SCHEMA {schema}"),
        // What was there before the transaction and still has its file must be announced.
        format!(
            "CREATE FUNCTION {schema}.assert_announced() RETURNS trigger LANGUAGE plpgsql AS $$ \
             DECLARE file oid := pg_relation_filenode(TG_RELID); \
             BEGIN \
                 IF current_setting('fuzz.files', true) \
                        LIKE format('%%,%s=%s,%%', TG_RELID, file) \
                    AND NOT EXISTS (SELECT FROM stillpoint.invalidation \
                                     WHERE relation = TG_RELID AND filenode = file \
                                       AND xid = pg_current_xact_id()) \
                 THEN \
                     RAISE SQLSTATE 'SP001' \
                         USING MESSAGE = format('%s is truncated unannounced', TG_RELID::regclass); \
                 END IF; \
                 RETURN NULL; \
             END $$"
        ),
        format!(
            "CREATE FUNCTION {schema}.empty(name text) RETURNS void LANGUAGE plpgsql AS $$ \
             BEGIN EXECUTE 'TRUNCATE ' || name; END $$"
        ),
        format!("CREATE TABLE {schema}.p (id int, word text) PARTITION BY RANGE (id)"),
        format!("CREATE INDEX p_id ON {schema}.p (id)"),
        format!("CREATE TABLE {schema}.p1 PARTITION OF {schema}.p FOR VALUES FROM (0) TO (10)"),
        format!("CREATE TABLE {schema}.p2 PARTITION OF {schema}.p FOR VALUES FROM (10) TO (20)"),
        format!("CREATE TABLE {schema}.f (id int PRIMARY KEY)"),
        format!("CREATE TABLE {schema}.g (id int REFERENCES {schema}.f)"),
        format!("CREATE TABLE {schema}.i (id int)"),
        format!("CREATE TABLE {schema}.j () INHERITS ({schema}.i)"),
        format!(
            "CREATE MATERIALIZED VIEW {schema}.m AS \
             SELECT i AS id, i::text AS word FROM generate_series(1, 20) AS i"
        ),
        format!("CREATE UNIQUE INDEX m_id ON {schema}.m (id)"),
    ];
    statements.extend((0..TABLES).map(|number| table(schema, number)));
    statements
}

fn table(schema: &str, number: u32) -> String {
    let name = format!("{schema}.t{number}");
    format!(
        "CREATE TABLE IF NOT EXISTS {name} (id serial PRIMARY KEY, word text, n int); \
         CREATE INDEX IF NOT EXISTS t{number}_n ON {name} (n); \
         DROP TRIGGER IF EXISTS announced ON {name}; \
         CREATE TRIGGER announced BEFORE TRUNCATE ON {name} \
             EXECUTE FUNCTION {schema}.assert_announced(); \
         INSERT INTO {name} (word, n) SELECT i, i FROM generate_series(1, 20) AS i"
    )
}

/// A statement that may run in a transaction block.
pub(crate) fn in_a_block(schema: &str, random: &mut Random) -> Statement {
    let number = random.below(TABLES);
    let t = format!("{schema}.t{number}");
    let u = format!("{schema}.t{}", (number + 1 + random.below(TABLES - 1)) % TABLES);
    let tablespace = if random.below(2) == 0 { TABLESPACE } else { "pg_default" };
    let plain = |sql: String| Statement { sql, announces: None };
    let announcing =
        |sql: String, label: &str| Statement { sql, announces: Some(label.to_owned()) };
    let (table, key, index) =
        (format!("t{number}"), format!("t{number}_pkey"), format!("t{number}_n"));
    match random.below(36) {
        0 | 1 => announcing(format!("TRUNCATE {t}"), &table),
        2 => announcing(format!("TRUNCATE {t}, {u} RESTART IDENTITY"), &table),
        3 => announcing(format!("TRUNCATE {schema}.p"), "p1"),
        4 => announcing(format!("TRUNCATE {schema}.f CASCADE"), "f"),
        5 => announcing(format!("TRUNCATE {schema}.i"), "j"),
        6 => announcing(format!("CLUSTER {t} USING {key}"), &table),
        7 => announcing(format!("REINDEX TABLE {t}"), &key),
        8 => announcing(format!("REINDEX INDEX {schema}.{index}"), &index),
        9 => announcing(format!("REFRESH MATERIALIZED VIEW {schema}.m"), "m"),
        10 => plain(format!("REFRESH MATERIALIZED VIEW CONCURRENTLY {schema}.m")),
        11 => announcing(format!("ALTER TABLE {t} SET TABLESPACE {tablespace}"), &table),
        12 => {
            announcing(format!("ALTER INDEX {schema}.{index} SET TABLESPACE {tablespace}"), &index)
        }
        13 => announcing(format!("ALTER TABLE {t} SET UNLOGGED"), &table),
        14 => announcing(format!("ALTER TABLE {t} SET LOGGED"), &table),
        15 => plain(format!("ALTER TABLE {t} ALTER n TYPE bigint")),
        16 => plain(format!("ALTER TABLE {t} ALTER n TYPE int")),
        17 => plain(format!("ALTER TABLE {t} ADD IF NOT EXISTS chance float8 DEFAULT random()")),
        18 => plain(format!("ALTER TABLE {t} DROP IF EXISTS chance, DROP IF EXISTS five")),
        19 => plain(format!("ALTER TABLE {t} ADD IF NOT EXISTS five int DEFAULT 5")),
        20 => plain(format!("ALTER TABLE {t} ALTER word TYPE varchar({})", 20 + random.below(20))),
        21 => plain(format!("DROP TABLE IF EXISTS {t}")),
        22..=24 => plain(self::table(schema, number)),
        25 => plain(format!("DROP INDEX IF EXISTS {schema}.{index}")),
        26 => plain(format!("CREATE INDEX IF NOT EXISTS {index} ON {t} (n)")),
        27 => plain(format!("ALTER SEQUENCE {schema}.t{number}_id_seq RESTART")),
        28 => plain(format!(
            "INSERT INTO {t} (word, n) SELECT repeat(i::text, 3), i FROM generate_series(1, 9) AS i"
        )),
        29 => plain(format!("UPDATE {t} SET word = word || 'x' WHERE n % 3 = 0")),
        30 => plain(format!("DELETE FROM {t} WHERE n % 7 = 0")),
        31 => {
            plain("CREATE TEMP TABLE IF NOT EXISTS scratch (w text) ON COMMIT DELETE ROWS".into())
        }
        32 => plain(format!(
            "CREATE TABLE {schema}.brief AS SELECT 'x'::text AS w; \
             TRUNCATE {schema}.brief; DROP TABLE {schema}.brief"
        )),
        33 => plain(format!(
            "DO $$ BEGIN \
                 BEGIN TRUNCATE {t}; RAISE division_by_zero; \
                 EXCEPTION WHEN division_by_zero THEN TRUNCATE {u}; END; \
             END $$"
        )),
        34 => announcing(format!("SELECT {schema}.empty('{t}')"), &table),
        _ => plain(swap(schema, &table, &u[schema.len() + 1..])),
    }
}

/// Swaps the names of two tables and their indexes.
fn swap(schema: &str, one: &str, other: &str) -> String {
    let rename = |from: &str, to: &str| {
        format!(
            "ALTER TABLE {schema}.{from} RENAME TO {to}; \
             ALTER INDEX {schema}.{from}_pkey RENAME TO {to}_pkey; \
             ALTER INDEX IF EXISTS {schema}.{from}_n RENAME TO {to}_n; "
        )
    };
    [rename(one, "swapped"), rename(other, one), rename("swapped", other)].concat()
}

/// A statement that has transactions of its own.
pub(crate) fn alone(schema: &str, random: &mut Random) -> Alone {
    let number = random.below(TABLES);
    let t = format!("t{number}");
    let u = format!("t{}", (number + 1 + random.below(TABLES - 1)) % TABLES);
    let (name, other) = (format!("{schema}.{t}"), format!("{schema}.{u}"));
    let work = |sql: String, table: &str, announced: &str, in_place: bool| Alone {
        sql,
        table: table.to_owned(),
        announced: announced.to_owned(),
        in_place,
    };
    match random.below(14) {
        0..=2 => work(format!("VACUUM {name}"), &t, &t, true),
        3 => work(format!("VACUUM (FREEZE, ANALYZE, DISABLE_PAGE_SKIPPING) {name}"), &t, &t, true),
        4 => work(format!("VACUUM {name}, {other}"), &u, &t, true),
        5 | 6 => work(format!("VACUUM FULL {name}"), &t, &t, false),
        7 => work(format!("VACUUM (FULL, ANALYZE) {name}, {other}"), &u, &u, false),
        8 => work(format!("VACUUM {schema}.p"), "p2", "p1", true),
        9 => work(format!("VACUUM (FULL) {schema}.p"), "p1", "p1", false),
        10 => work(
            format!("REINDEX TABLE CONCURRENTLY {name}"),
            &t,
            &format!("t{number}_pkey"),
            false,
        ),
        11 => work(
            format!("REINDEX INDEX CONCURRENTLY {schema}.t{number}_n"),
            &t,
            &format!("t{number}_n"),
            false,
        ),
        12 => work(format!("REINDEX SCHEMA {schema}"), "p1", "p1_id_idx", false),
        _ => work(format!("REINDEX TABLE {schema}.p"), "p2", "p2_id_idx", false),
    }
}

/// A procedure's worth of transactions.
pub(crate) fn with_commits(schema: &str, random: &mut Random) -> String {
    let t = format!("{schema}.t{}", random.below(TABLES));
    let u = format!("{schema}.t{}", random.below(TABLES));
    format!(
        "DO $$ BEGIN \
             TRUNCATE {t}; COMMIT; \
             TRUNCATE {u}; ROLLBACK; \
             CLUSTER {u} USING {}_pkey; COMMIT; \
             TRUNCATE {t}, {u}; \
         END $$",
        &u[schema.len() + 1..]
    )
}
