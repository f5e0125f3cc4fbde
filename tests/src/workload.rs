//! Sessions that run random statements of all kinds, each on relations of its own.
//!
//! A worker begins transactions and leaves them open between its steps, prepares some, rolls
//! others back, and runs what has transactions of its own. It goes on a step at a time, so that
//! whoever drives several of them decides what happens between two steps of each.

use postgres::Error;

use crate::ledger::fuzz::statement;
use crate::random::Random;
use crate::{Cluster, Session};

/// What a server may refuse of random statements: objects that are missing or there already, what
/// may not run here, what others depend on, one of two that wait for each other.
const REFUSED: [&str; 12] = [
    "42P01", "42P07", "42704", "42703", "42701", "25001", "0A000", "2BP01", "40P01", "22001",
    "55006", "23505",
];

/// Makes what workers need of a cluster besides a database.
pub fn prepare(cluster: &Cluster) {
    cluster.create_tablespace(crate::ledger::fuzz::TABLESPACE);
}

/// A session with a schema of its own.
pub struct Worker {
    session: Session,
    schema: String,
    random: Random,
    state: State,
    /// Whether relations are made unlogged.
    unlogged: bool,
    /// Whether a REINDEX CONCURRENTLY may have been ended in the middle.
    has_leftovers: bool,
}

/// What a worker is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// In a transaction.
    Open,
    /// A transaction is prepared, which holds what the next statement may need.
    Prepared,
}

impl Worker {
    /// A worker whose choices the seed determines; makes its schema.
    #[track_caller]
    #[must_use]
    pub fn new(mut session: Session, schema: &str, seed: u64) -> Self {
        for sql in statement::schema(schema).iter().chain(&large_table(schema)) {
            session.exec(sql);
        }
        let random = Random::new(seed);
        let schema = schema.to_owned();
        Self { session, schema, random, state: State::Idle, unlogged: true, has_leftovers: false }
    }

    /// A worker that leaves unlogged relations alone, for a server that is going to crash. Where
    /// one was made by a transaction that was rolled back, and the crash has taken the record of
    /// that, the server finds its file in the way and never starts again.
    #[must_use]
    pub fn without_unlogged(mut self) -> Self {
        self.unlogged = false;
        self
    }

    /// Goes on with another session: the last one is gone, and with it its transaction, if that
    /// was not prepared.
    pub fn go_on_with(&mut self, session: Session) -> Result<(), Error> {
        self.session = session;
        self.has_leftovers = true;
        self.look_for_prepared()
    }

    /// Drops the indexes that a REINDEX CONCURRENTLY has not finished. Every row that is written
    /// goes into them, too, and there would be more and more.
    fn drop_leftovers(&mut self) -> Result<(), Error> {
        let leftovers = self.session.try_rows(&format!(
            "SELECT pg_catalog.format('DROP INDEX IF EXISTS %s', i.indexrelid::regclass) \
               FROM pg_catalog.pg_index AS i \
               JOIN pg_catalog.pg_class AS t ON i.indrelid IN (t.oid, t.reltoastrelid) \
              WHERE t.relnamespace = '{}'::regnamespace AND NOT i.indisvalid",
            self.schema
        ))?;
        for sql in leftovers.into_iter().flatten().flatten() {
            self.run(&sql)?;
        }
        self.has_leftovers = false;
        Ok(())
    }

    fn look_for_prepared(&mut self) -> Result<(), Error> {
        let prepared = self.session.try_rows(&format!(
            "SELECT FROM pg_catalog.pg_prepared_xacts WHERE gid = '{}'",
            self.schema
        ))?;
        self.state = if prepared.is_empty() { State::Idle } else { State::Prepared };
        Ok(())
    }

    /// The process id of its backend.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.session.pid()
    }

    /// Runs the next statement. An error is one that the server should not have raised, or tells
    /// that the session is gone.
    pub fn step(&mut self) -> Result<(), Error> {
        if self.has_leftovers && self.state == State::Idle {
            self.drop_leftovers()?;
        }
        match (self.state, self.random.below(10)) {
            (State::Prepared, choice) => self.end_prepared(choice < 3),
            (State::Open, 0..=6) => self.in_a_block(),
            (State::Open, 7) => self.roll_back(),
            (State::Open, 8) => self.prepare(),
            (State::Open, _) => self.commit(),
            (State::Idle, 0..=4) => {
                self.session.try_exec("BEGIN")?;
                self.state = State::Open;
                self.in_a_block()
            }
            (State::Idle, 5..=7) => self.alone(),
            (State::Idle, 8) => {
                let sql = statement::with_commits(&self.schema, &mut self.random);
                self.run(&sql).map(drop)
            }
            (State::Idle, _) => {
                let sql = self.any_statement();
                self.run(&sql).map(drop)
            }
        }
    }

    /// Ends what it is in the middle of.
    pub fn settle(&mut self) -> Result<(), Error> {
        match self.state {
            State::Idle => Ok(()),
            State::Open => self.commit(),
            State::Prepared => self.end_prepared(false),
        }
    }

    fn any_statement(&mut self) -> String {
        loop {
            let sql = if self.random.below(3) == 0 {
                in_place(&self.schema, &mut self.random)
            } else {
                statement::in_a_block(&self.schema, &mut self.random).sql
            };
            if self.unlogged || !sql.contains("UNLOGGED") {
                return sql;
            }
        }
    }

    fn in_a_block(&mut self) -> Result<(), Error> {
        let sql = self.any_statement();
        if self.run(&sql)? { Ok(()) } else { self.roll_back() }
    }

    fn alone(&mut self) -> Result<(), Error> {
        let sql = match self.random.below(10) {
            0 => format!("VACUUM FULL {}.large", self.schema),
            1 => format!("REINDEX TABLE CONCURRENTLY {}.large", self.schema),
            2 => format!("VACUUM (FREEZE, DISABLE_PAGE_SKIPPING) {}.large", self.schema),
            3 | 4 => format!("VACUUM {}.large", self.schema),
            // Never twice in one transaction: a server's SP-GiST index then looks for pages that
            // the second TRUNCATE has cut off.
            5 => format!("TRUNCATE {}.large; {}", self.schema, more_rows(&self.schema, 2000)),
            _ => statement::alone(&self.schema, &mut self.random).sql,
        };
        self.run(&sql).map(drop)
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.state = State::Idle;
        self.run("COMMIT").map(drop)
    }

    fn roll_back(&mut self) -> Result<(), Error> {
        self.state = State::Idle;
        self.session.try_exec("ROLLBACK")
    }

    fn prepare(&mut self) -> Result<(), Error> {
        let sql = format!("PREPARE TRANSACTION '{}'", self.schema);
        // Refused after work on temporary tables, which is a rollback.
        self.state = if self.run(&sql)? { State::Prepared } else { State::Idle };
        Ok(())
    }

    fn end_prepared(&mut self, rolled_back: bool) -> Result<(), Error> {
        let verb = if rolled_back { "ROLLBACK" } else { "COMMIT" };
        match self.session.try_exec(&format!("{verb} PREPARED '{}'", self.schema)) {
            Ok(()) => {
                self.state = State::Idle;
                Ok(())
            }
            // A session that is about to be gone is at it, or was.
            Err(error) if is_one_of(&error, &["55000", "42704"]) => self.look_for_prepared(),
            Err(error) => Err(error),
        }
    }

    /// Says whether the server has done it, and has not refused what it may refuse.
    fn run(&mut self, sql: &str) -> Result<bool, Error> {
        match self.session.try_exec(sql) {
            Ok(()) => Ok(true),
            Err(error) if is_one_of(&error, &REFUSED) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn is_one_of(error: &Error, codes: &[&str]) -> bool {
    error.code().is_some_and(|code| codes.contains(&code.code()))
}

/// A table of many pages with an index of each kind, of which statements change a few at a time.
fn large_table(schema: &str) -> Vec<String> {
    vec![
        format!(
            "CREATE TABLE {schema}.large (id serial PRIMARY KEY, n int, place point, word text, \
                                          body text)"
        ),
        format!("CREATE INDEX large_hash ON {schema}.large USING hash (n)"),
        format!("CREATE INDEX large_gist ON {schema}.large USING gist (place)"),
        format!("CREATE INDEX large_spgist ON {schema}.large USING spgist (word)"),
        format!("CREATE INDEX large_gin ON {schema}.large USING gin ((ARRAY[n, id % 10]))"),
        format!("CREATE INDEX large_brin ON {schema}.large USING brin (n)"),
        more_rows(schema, 3000),
    ]
}

fn more_rows(schema: &str, rows: u32) -> String {
    format!(
        "INSERT INTO {schema}.large (n, place, word) \
         SELECT i % 100, point(i % 100, i), md5(i::text) FROM generate_series(1, {rows}) AS i"
    )
}

/// A statement that leaves the files where they are, or nearly so, and may run in a block.
fn in_place(schema: &str, random: &mut Random) -> String {
    let large = format!("{schema}.large");
    let some = random.below(100);
    match random.below(12) {
        0..=2 => format!("UPDATE {large} SET n = n + 1 WHERE id % 100 = {some}"),
        3 | 4 => format!("DELETE FROM {large} WHERE id % 100 = {some}"),
        5 => format!("DELETE FROM {large} WHERE id > (SELECT max(id) - 500 FROM {large})"),
        6 | 7 => more_rows(schema, 300),
        8 => format!(
            "UPDATE {large} SET body = (SELECT string_agg(md5(random()::text), '') \
                                          FROM generate_series(1, 300)) \
              WHERE id % 1000 = {some}"
        ),
        9 | 10 => format!(
            "DROP INDEX {schema}.large_gist; \
                       CREATE INDEX large_gist ON {large} USING gist (place)"
        ),
        _ => format!("CLUSTER {large} USING large_pkey"),
    }
}

/// Queries that read through each kind of index on the workers' large tables.
pub(crate) fn probes(schema: &str) -> Vec<String> {
    let conditions = [
        "id % 7 = 3 AND id BETWEEN 100 AND 2000",
        "n = 17",
        "place <@ box(point(10, 0), point(30, 2000))",
        "word = md5('77')",
        "ARRAY[n, id % 10] @> ARRAY[3]",
        "n BETWEEN 90 AND 95",
    ];
    conditions
        .map(|condition| {
            format!(
                "SELECT count(*), sum(id), sum(length(body)) FROM {schema}.large WHERE {condition}"
            )
        })
        .to_vec()
}
