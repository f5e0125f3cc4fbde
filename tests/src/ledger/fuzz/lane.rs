//! One session of the fuzz.

use std::fmt::Write as _;
use std::mem;

use super::statement::{self, Alone, Statement};
use super::{DATABASE, Outcome, Shared};
use crate::ledger::{Effect, Entry, Mark, Scope, Storage, findings};
use crate::random::Random;
use crate::wait::poll;
use crate::{Cluster, DEADLINE, Session};

/// What the server may refuse of random statements: objects that are missing or there already,
/// what may not run here, what others depend on. An internal error is none of these.
const EXPECTED: [&str; 12] = [
    "42P01", "42P07", "42704", "42703", "42701", "25001", "0A000", "2BP01", "40P01", "22001",
    "55006", "23505",
];

/// What ends a statement that a lane itself stops.
const STOPPED: [&str; 2] = ["57014", "57P01"];

/// Set by the trigger that finds a truncation unannounced.
const UNANNOUNCED: &str = "SP001";

/// A session with a schema of its own.
pub(super) struct Lane<'a> {
    cluster: &'a Cluster,
    schema: String,
    number: u32,
    random: Random,
    /// Gone only while its statement runs in the background.
    session: Option<Session>,
    /// Reads the truth, and ends what the session has prepared.
    observer: Session,
    before: Storage,
    outcome: Outcome,
    /// What was run since the last judgement, for the finding.
    script: Vec<String>,
    /// What was run before that.
    earlier: Vec<String>,
}

impl<'a> Lane<'a> {
    pub(super) fn new(cluster: &'a Cluster, number: u32, random: Random) -> Self {
        let schema = format!("z{number}");
        let mut session = cluster.session(DATABASE);
        for statement in statement::schema(&schema) {
            session.exec(&statement);
        }
        Self {
            cluster,
            schema,
            number,
            random,
            session: Some(session),
            observer: cluster.session(DATABASE),
            before: Storage::default(),
            outcome: Outcome::default(),
            script: Vec::new(),
            earlier: Vec::new(),
        }
    }

    /// Runs transactions until enough statements were run.
    pub(super) fn run(mut self, shared: &Shared) -> Outcome {
        self.before = Storage::read(&mut self.observer, Scope::Schema(&self.schema));
        while self.step(shared) {
            if !self.outcome.findings.is_empty() {
                shared.found();
            }
        }
        self.outcome
    }

    /// One transaction, or one statement with its own ones. False when enough were run.
    fn step(&mut self, shared: &Shared) -> bool {
        let choice = self.random.below(20);
        let count = if choice < 10 { 1 + self.random.below(6) } else { 1 };
        if !shared.take(count) {
            return false;
        }
        let before = self.outcome.done + self.outcome.refused;
        self.earlier = mem::take(&mut self.script);
        self.tell_files();
        let mark = Mark::now(&mut self.observer);
        match choice {
            0..=9 => {
                self.block(count);
                self.judge(mark, 1);
            }
            10..=12 => {
                let statement = statement::in_a_block(&self.schema, &mut self.random);
                let _ = self.execute(&statement.sql);
                self.judge(mark, 1);
            }
            13 => {
                let sql = statement::with_commits(&self.schema, &mut self.random);
                let _ = self.execute(&sql);
                self.judge(mark, 3);
            }
            _ => self.alone(mark),
        }
        // A block that failed has not run all of its statements.
        let used = (self.outcome.done + self.outcome.refused - before) as u32;
        shared.give_back(count.saturating_sub(used));
        true
    }

    /// Says to the trigger which relation has which file before the transaction.
    fn tell_files(&mut self) {
        let mut files = String::from(",");
        for (oid, relation) in self.before.iter() {
            let _ = write!(files, "{oid}={},", relation.filenode);
        }
        self.session().exec(&format!("SET fuzz.files = '{files}'"));
    }

    /// A transaction block of some statements, with savepoints, ended in one way or another.
    fn block(&mut self, count: u32) {
        self.control("BEGIN");
        let mut savepoints = 0;
        for _ in 0..count {
            match self.random.below(6) {
                0 | 1 => {
                    savepoints += 1;
                    self.control(&format!("SAVEPOINT s{savepoints}"));
                }
                // To any of them: those inside go with it.
                2 if savepoints > 0 => {
                    savepoints = 1 + self.random.below(savepoints);
                    self.control(&format!("ROLLBACK TO s{savepoints}"));
                }
                3 if savepoints > 0 => {
                    let outermost = 1 + self.random.below(savepoints);
                    self.control(&format!("RELEASE s{outermost}"));
                    savepoints = outermost - 1;
                }
                _ => {}
            }
            let statement = statement::in_a_block(&self.schema, &mut self.random);
            let held = self.execute(&statement.sql).is_ok();
            if held {
                self.assert_announced(&statement);
            } else if savepoints > 0 {
                self.control(&format!("ROLLBACK TO s{savepoints}"));
            } else {
                self.control("ROLLBACK");
                return;
            }
        }
        match self.random.below(20) {
            0..=3 => {
                self.control("ROLLBACK");
            }
            4..=6 => self.prepare(),
            _ => {
                self.control("COMMIT");
            }
        }
    }

    /// Prepares the transaction; another session ends it.
    fn prepare(&mut self) {
        let gid = format!("fuzz-{}", self.number);
        // Refused after work on temporary tables, which is a rollback.
        if self.execute(&format!("PREPARE TRANSACTION '{gid}'")).is_err() {
            return;
        }
        let verb = if self.random.below(3) == 0 { "ROLLBACK" } else { "COMMIT" };
        let sql = format!("{verb} PREPARED '{gid}'");
        self.observer.exec(&sql);
        self.script.push(sql);
    }

    /// In the transaction: a relation that had its file from before until now is announced, by
    /// itself or, as an index, with its table.
    fn assert_announced(&mut self, statement: &Statement) {
        let Some(label) = &statement.announces else { return };
        let found = self.before.iter().find(|(_, relation)| relation.label == *label);
        let Some((oid, relation)) = found else { return };
        let file = relation.filenode;
        let missing = self.session().yes(&format!(
            "SELECT COALESCE(pg_relation_filenode({oid}) <> {file}, false) \
                AND NOT EXISTS (SELECT FROM stillpoint.invalidation \
                                 WHERE xid = pg_current_xact_id() \
                                   AND ((relation = {oid} AND filenode = {file}) \
                                        OR relation = (SELECT indrelid FROM pg_index \
                                                        WHERE indexrelid = {oid})))"
        ));
        // An earlier statement of the transaction that is never announced may have replaced it.
        let replaced_before = self.script.iter().any(|sql| sql.starts_with("ALTER TABLE"));
        if missing && !replaced_before {
            self.find(&[format!("file {file} of \"{label}\" is replaced unannounced")]);
        }
    }

    /// A statement with transactions of its own; now and then stopped right after its record.
    fn alone(&mut self, mark: Mark) {
        let alone = statement::alone(&self.schema, &mut self.random);
        let is_there = self.before.iter().any(|(_, relation)| relation.label == alone.table);
        let done = if self.random.below(4) == 0 && is_there {
            self.execute_held(&alone, mark)
        } else {
            self.execute(&alone.sql)
        };
        let before = self.before.clone();
        let entries = self.judge(mark, 1);
        if done.is_err() || !alone.in_place {
            return;
        }
        for label in [alone.table.clone(), format!("toast of {}", alone.table)] {
            let Some((oid, _)) = before.iter().find(|(_, found)| found.label == label) else {
                continue;
            };
            let told = entries.iter().any(|entry| {
                entry.relation == oid
                    && entry.effect == Effect::Pages
                    && entry.finished.is_some_and(|end| end > entry.xid)
            });
            if !told {
                self.find(&[format!("\"{label}\" was vacuumed, and no row says so")]);
            }
        }
    }

    /// Runs a statement up to the point where it waits for a table's lock, looks at its record,
    /// and lets it go on, cancels it, or ends its session.
    fn execute_held(&mut self, alone: &Alone, mark: Mark) -> Result<(), ()> {
        let mut holder = self.cluster.session(DATABASE);
        holder.exec(&format!(
            "BEGIN; LOCK TABLE ONLY {}.{} IN SHARE UPDATE EXCLUSIVE MODE",
            self.schema, alone.table
        ));
        self.script.push(format!("{} -- held at {}", alone.sql, alone.table));
        let running = self.session.take().expect("it is idle").start(&alone.sql);
        let pid = running.pid();
        let waits = format!("SELECT {} = ANY (pg_blocking_pids({pid}))", holder.pid());
        let observer = &mut self.observer;
        let arrived = poll(DEADLINE, || {
            if running.has_ended() { Some(false) } else { observer.yes(&waits).then_some(true) }
        });
        let waiting = arrived.unwrap_or_else(|| panic!("neither done nor waiting: {}", alone.sql));
        let mut ended = false;
        if waiting {
            self.outcome.held += 1;
            self.assert_open(alone, mark);
            match self.random.below(4) {
                0 => assert!(self.observer.yes(&format!("SELECT pg_cancel_backend({pid})"))),
                1 => {
                    ended = true;
                    assert!(self.observer.yes(&format!("SELECT pg_terminate_backend({pid})")));
                }
                _ => holder.exec("COMMIT"),
            }
        }
        let (session, result) = running.result();
        if ended {
            self.session = Some(self.cluster.session(DATABASE));
            return Err(());
        }
        self.session = Some(session);
        self.count(&alone.sql, result)
    }

    /// The statement has been recorded, for everybody to see, and its end has not.
    fn assert_open(&mut self, alone: &Alone, mark: Mark) {
        let found = self.before.iter().find(|(_, relation)| relation.label == alone.announced);
        let Some((oid, _)) = found else { return };
        let entries = Entry::since(&mut self.observer, mark, Scope::Schema(&self.schema));
        let open = entries.iter().any(|entry| {
            entry.relation == oid && entry.effect == Effect::Announced && entry.finished.is_none()
        });
        if !open {
            self.find(&[format!("\"{}\" is worked on unannounced", alone.announced)]);
        }
    }

    /// Runs a statement of the lane's choice and counts how it ends.
    fn execute(&mut self, sql: &str) -> Result<(), ()> {
        self.script.push(sql.to_owned());
        let result = self.session().try_exec(sql);
        self.count(sql, result)
    }

    /// Begins or ends a transaction or savepoint, which never fails.
    fn control(&mut self, sql: &str) {
        self.script.push(sql.to_owned());
        if let Err(error) = self.session().try_exec(sql) {
            self.find(&[format!("{sql}\n{}", crate::session::describe(&error))]);
        }
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("it is idle")
    }

    fn count(&mut self, sql: &str, result: Result<(), postgres::Error>) -> Result<(), ()> {
        let Err(error) = result else {
            self.outcome.done += 1;
            return Ok(());
        };
        self.outcome.refused += 1;
        let code = error.code().map_or("", |code| code.code());
        if code == UNANNOUNCED || !EXPECTED.iter().chain(&STOPPED).any(|known| *known == code) {
            self.find(&[format!("{sql}\n{}", crate::session::describe(&error))]);
        }
        Err(())
    }

    /// Holds the ledger's rows against what the catalog says now.
    fn judge(&mut self, mark: Mark, transactions: usize) -> Vec<Entry> {
        let scope = Scope::Schema(&self.schema);
        let after = Storage::read(&mut self.observer, scope);
        let mut entries = Entry::since(&mut self.observer, mark, scope);
        // The other lanes write too.
        entries.retain(|entry| {
            self.before.get(entry.relation).is_some() || after.get(entry.relation).is_some()
        });
        let found = findings(&self.before, &after, &entries, transactions);
        if !found.is_empty() {
            self.find(&found);
        }
        let told = |entry: &&Entry| matches!(entry.effect, Effect::Replaced | Effect::Dropped);
        let confirmed = entries.iter().filter(told);
        self.outcome
            .confirmed
            .extend(confirmed.map(|entry| (entry.xid, entry.relation, entry.filenode)));
        self.outcome.judged += 1;
        self.before = after;
        entries
    }

    fn find(&mut self, found: &[String]) {
        self.outcome.findings.push(format!(
            "lane {}\n  {}\nafter\n  {}\nand before that\n  {}",
            self.number,
            found.join("\n  "),
            self.script.join(";\n  "),
            self.earlier.join(";\n  ")
        ));
    }
}
