//! A storm of DDL that keeps its own books.
//!
//! Every session of the storm runs one transaction after the other. Each does to a table what
//! breaks a careless dump, and writes in the same transaction what the table holds now into the
//! table `storm.oracle`. A dump is of one snapshot, so whatever it caught, the oracle's rows in
//! it must describe the tables in it exactly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use postgres::error::SqlState;

use crate::random::Random;
use crate::wait::poll;
use crate::{Cluster, DEADLINE, Session, TableDigest, table_digest};

/// How a storm blows.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Tables it works on.
    pub tables: u32,
    /// Sessions that work at the same time.
    pub sessions: u32,
    /// The longest rest of a session between two transactions while a gust blows; the usual
    /// one is half of it.
    pub rest: Duration,
    /// Where its random choices start.
    pub seed: u64,
}

impl Weather {
    /// A storm that hardly any first attempt escapes, and that a machine with two cores stands.
    #[must_use]
    pub fn usual(seed: u64) -> Self {
        Self { tables: 12, sessions: 4, rest: Duration::from_millis(30), seed }
    }
}

/// What the sessions of a storm do, each in one transaction.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Reload,
    Rewrite,
    SwapNames,
    Recreate,
    Drop,
}

/// How often each deed is done, by how often it stands here. What makes a name vanish is rare:
/// a careless dump fails at it, and that is the lesser harm.
const DEEDS: [Deed; 12] = [
    Deed::Reload,
    Deed::Reload,
    Deed::Reload,
    Deed::Reload,
    Deed::Reload,
    Deed::Rewrite,
    Deed::Rewrite,
    Deed::Rewrite,
    Deed::SwapNames,
    Deed::SwapNames,
    Deed::Recreate,
    Deed::Drop,
];

/// How much longer the sessions rest while no gust blows.
const LULL: u32 = 10;

/// A running storm.
pub struct Storm {
    stop: Arc<AtomicBool>,
    gust: Arc<AtomicBool>,
    deeds: Arc<AtomicU64>,
    sessions: Vec<JoinHandle<()>>,
}

impl Storm {
    /// Makes the tables in a database and lets the storm loose on them.
    #[must_use]
    pub fn start(cluster: &Cluster, database: &str, weather: Weather) -> Self {
        let mut random = Random::new(weather.seed);
        prepare(&mut cluster.session(database), weather.tables, &mut random);
        let stop = Arc::new(AtomicBool::new(false));
        let gust = Arc::new(AtomicBool::new(true));
        let deeds = Arc::new(AtomicU64::new(0));
        let sessions = (0..weather.sessions)
            .map(|_| {
                let mut session = cluster.session(database);
                let (stop, gust, deeds) =
                    (Arc::clone(&stop), Arc::clone(&gust), Arc::clone(&deeds));
                let mut random = Random::new(random.next());
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let done = one_deed(&mut session, weather.tables, &mut random);
                        deeds.fetch_add(u64::from(done), Ordering::Relaxed);
                        let rest = weather.rest.mul_f64(random.fraction());
                        let calm = if gust.load(Ordering::Relaxed) { 1 } else { LULL };
                        thread::sleep(rest * calm);
                    }
                })
            })
            .collect();
        Self { stop, gust, deeds, sessions }
    }

    /// Lets it blow with full force, and waits until it does.
    ///
    /// # Panics
    ///
    /// If the sessions do nothing any more.
    pub fn gust(&self) {
        self.gust.store(true, Ordering::Relaxed);
        let before = self.deeds.load(Ordering::Relaxed);
        let enough = before + self.sessions.len() as u64;
        let blows = poll(DEADLINE, || (self.deeds.load(Ordering::Relaxed) >= enough).then_some(()));
        assert!(blows.is_some(), "the storm has died down");
    }

    /// Lets it calm down, though not die.
    pub fn lull(&self) {
        self.gust.store(false, Ordering::Relaxed);
    }

    /// Ends the storm and returns how many transactions it committed.
    ///
    /// # Panics
    ///
    /// If a session of the storm failed: then the storm was weaker than it says.
    #[must_use]
    pub fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for session in self.sessions {
            session.join().expect("a session of the storm failed");
        }
        self.deeds.load(Ordering::Relaxed)
    }
}

/// What is wrong in a restored database, a sentence each; nothing if every row of the oracle
/// is satisfied.
///
/// The tables in `left_out` have to be there without rows: a dump that names them as left out
/// promises their definition and nothing else.
#[must_use]
pub fn check(restored: &mut Session, left_out: &BTreeSet<String>) -> Vec<String> {
    let mut tables: BTreeSet<String> = restored
        .texts("SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = 'storm'")
        .into_iter()
        .collect();
    if !tables.remove("oracle") {
        return vec!["the oracle is not there".into()];
    }
    let promised = promises(restored);
    let mut wrong = Vec::new();
    if promised.is_empty() {
        wrong.push("the oracle is empty".into());
    }
    for (name, promise) in promised {
        match (promise, tables.remove(&name)) {
            (None, false) => {}
            (None, true) => wrong.push(format!("\"{name}\" is there, but was dropped")),
            (Some(_), false) => wrong.push(format!("\"{name}\" is not there")),
            (Some(promise), true) => {
                let held = table_digest(restored, &format!("storm.{name}"));
                let empty = TableDigest { rows: 0, checksum: "0".into() };
                let promise = if left_out.contains(&name) { empty } else { promise };
                if held != promise {
                    wrong.push(format!("\"{name}\" holds {held} instead of {promise}"));
                }
            }
        }
    }
    wrong.extend(tables.iter().map(|name| format!("\"{name}\" is unknown to the oracle")));
    wrong
}

/// What every table holds according to the oracle; `None` for one that is dropped.
fn promises(restored: &mut Session) -> BTreeMap<String, Option<TableDigest>> {
    let mut promises = BTreeMap::new();
    for row in restored.rows("SELECT name, rows, checksum FROM storm.oracle") {
        let [name, rows, checksum]: [Option<String>; 3] =
            row.try_into().expect("three columns were asked for");
        let name = name.expect("a key is not NULL");
        let rows = rows.map(|rows| rows.parse().expect("a count is a number"));
        let promise = rows.zip(checksum).map(|(rows, checksum)| TableDigest { rows, checksum });
        promises.insert(name, promise);
    }
    promises
}

fn prepare(session: &mut Session, tables: u32, random: &mut Random) {
    session.exec(
        "CREATE SCHEMA storm; \
         CREATE TABLE storm.oracle (name text PRIMARY KEY, generation bigint NOT NULL, \
                                    rows bigint, checksum text)",
    );
    for number in 0..tables {
        create(session, &table_name(number), random);
    }
}

fn table_name(number: u32) -> String {
    format!("t{number}")
}

/// Does one thing to one table (a swap: to two) in one transaction. Says whether it committed.
fn one_deed(session: &mut Session, tables: u32, random: &mut Random) -> bool {
    let first = random.below(tables);
    let second = (first + 1 + random.below(tables - 1)) % tables;
    let deed = DEEDS[random.below(DEEDS.len() as u32) as usize];

    session.exec("BEGIN");
    // Sessions of the storm keep out of each other's way by these locks, in one order; with
    // the dump they collide unhindered.
    for number in [first.min(second), first.max(second)] {
        session.exec(&format!("SELECT pg_catalog.pg_advisory_xact_lock({number})"));
    }
    let (first, second) = (table_name(first), table_name(second));
    let there = exists(session, &first);
    let swaps = matches!(deed, Deed::SwapNames) && there && exists(session, &second);
    if there && !lock(session, &first, swaps.then_some(&second)) {
        session.exec("ROLLBACK");
        return false;
    }
    match deed {
        _ if !there => create(session, &first, random),
        Deed::Reload => {
            session.exec(&format!("TRUNCATE storm.{first}"));
            fill(session, &first, random);
        }
        Deed::Rewrite => {
            let other_type = other_type(session, &first);
            session
                .exec(&format!("ALTER TABLE storm.{first} ALTER COLUMN amount TYPE {other_type}"));
            record(session, &first);
        }
        Deed::SwapNames => {
            if swaps {
                session.exec(&format!("ALTER TABLE storm.{second} RENAME TO {first}_aside"));
            }
            session.exec(&format!("ALTER TABLE storm.{first} RENAME TO {second}"));
            if swaps {
                session.exec(&format!("ALTER TABLE storm.{first}_aside RENAME TO {first}"));
            }
            record(session, &first);
            record(session, &second);
        }
        Deed::Recreate => {
            session.exec(&format!("DROP TABLE storm.{first}"));
            create(session, &first, random);
        }
        Deed::Drop => {
            session.exec(&format!("DROP TABLE storm.{first}"));
            record(session, &first);
        }
    }
    session.exec("COMMIT");
    true
}

/// Takes all the locks of a deed. A swap holds one while it asks for the other, and so does a
/// dump: the server may end either. A deed that was ended this way has done nothing.
fn lock(session: &mut Session, first: &str, second: Option<&String>) -> bool {
    let second = second.map(|second| format!(", storm.{second}")).unwrap_or_default();
    let statement = format!("LOCK TABLE storm.{first}{second} IN ACCESS EXCLUSIVE MODE");
    match session.try_exec(&statement) {
        Ok(()) => true,
        Err(error) if error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED) => false,
        Err(error) => panic!("the storm's statement \"{statement}\" failed: {error}"),
    }
}

fn create(session: &mut Session, name: &str, random: &mut Random) {
    // No primary key: the name of its index would have to follow the table through every swap.
    session.exec(&format!(
        "CREATE TABLE storm.{name} (id bigint, amount integer NOT NULL, remark text)"
    ));
    fill(session, name, random);
}

fn fill(session: &mut Session, name: &str, random: &mut Random) {
    let (rows, salt) = (1 + random.below(400), random.below(1_000_000));
    session.exec(&format!(
        "INSERT INTO storm.{name} \
         SELECT i, (i * {salt}) % 1000003, repeat(md5((i + {salt})::text), 1 + i % 4) \
           FROM generate_series(1, {rows}) AS i"
    ));
    record(session, name);
}

/// Writes what the table holds now, as this transaction sees it, into the oracle.
fn record(session: &mut Session, name: &str) {
    let holds = if exists(session, name) {
        let digest = table_digest(session, &format!("storm.{name}"));
        format!("{}, '{}'", digest.rows, digest.checksum)
    } else {
        "NULL, NULL".to_owned()
    };
    session.exec(&format!(
        "INSERT INTO storm.oracle AS o VALUES ('{name}', 1, {holds}) \
         ON CONFLICT (name) DO UPDATE SET generation = o.generation + 1, \
             rows = excluded.rows, checksum = excluded.checksum"
    ));
}

fn exists(session: &mut Session, name: &str) -> bool {
    session.yes(&format!("SELECT pg_catalog.to_regclass('storm.{name}') IS NOT NULL"))
}

fn other_type(session: &mut Session, name: &str) -> &'static str {
    let is_integer = session.yes(&format!(
        "SELECT atttypid = 'integer'::regtype FROM pg_catalog.pg_attribute \
          WHERE attrelid = 'storm.{name}'::regclass AND attname = 'amount'"
    ));
    if is_integer { "bigint" } else { "integer" }
}
