//! Random statements, and the ledger held against the truth after every transaction.
//!
//! Every lane is a session with a schema of its own that nobody else changes. So what `pg_class`
//! says before and after one of its transactions is exactly what the transaction did, however
//! many lanes run, and the ledger must say the same: [`findings()`](super::findings()) compares.

mod lane;
pub(crate) mod statement;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use postgres::types::Oid;

use self::lane::Lane;
use super::{Effect, Entry, Mark, Scope};
use crate::random::Random;
use crate::{Cluster, ClusterOptions, wait_until};

const DATABASE: &str = "fuzz";

/// Where some of the relations are moved to.
pub(crate) const TABLESPACE: &str = "elsewhere";

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many statements, without those that begin and end transactions and savepoints.
    pub statements: u32,
    /// How many sessions run them.
    pub lanes: u32,
    /// Where the random choices start.
    pub seed: u64,
    /// Whether the first finding ends the run.
    pub stop_early: bool,
}

/// What has been run and found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Statements that ended well.
    pub done: u64,
    /// Statements that the server refused, as it had to.
    pub refused: u64,
    /// Transactions, and statements with transactions of their own, that were judged.
    pub judged: u64,
    /// `replaced` and `dropped` rows that a transaction accounts for: by whom, and of which
    /// relation and file.
    pub confirmed: BTreeSet<(u64, Oid, Oid)>,
    /// Statements with transactions of their own that were stopped right after their record.
    pub held: u64,
    /// What is wrong.
    pub findings: Vec<String>,
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.done += other.done;
        self.refused += other.refused;
        self.judged += other.judged;
        self.confirmed.extend(other.confirmed);
        self.held += other.held;
        self.findings.extend(other.findings);
    }
}

/// What all lanes share.
struct Shared {
    left: AtomicU32,
    stop: AtomicBool,
    stop_early: bool,
}

impl Shared {
    /// Takes the right to run `count` more statements; none when enough were run.
    fn take(&self, count: u32) -> bool {
        if self.stop.load(Ordering::Relaxed) {
            return false;
        }
        let take = |left: u32| (left > 0).then(|| left.saturating_sub(count));
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Gives back what was taken and not used.
    fn give_back(&self, count: u32) {
        self.left.fetch_add(count, Ordering::Relaxed);
    }

    fn found(&self) {
        if self.stop_early {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs the plan on a new cluster with the library preloaded and these lines in its
/// configuration.
///
/// # Panics
///
/// If the harness or the server fails; what the ledger does wrong is told.
#[must_use]
pub fn run(plan: Plan, settings: &[&str]) -> Outcome {
    let options = settings
        .iter()
        .fold(ClusterOptions::default().preload(), |options, line| options.setting(line));
    let cluster = options.setting("deadlock_timeout = '200ms'").start();
    cluster.create_tablespace(TABLESPACE);
    cluster.create_database(DATABASE);
    cluster.create_extension(DATABASE);
    let mut random = Random::new(plan.seed);
    let mut lanes: Vec<_> = (0..plan.lanes)
        .map(|number| Lane::new(&cluster, number, Random::new(random.next())))
        .collect();
    let start = Mark::now(&mut cluster.session(DATABASE));
    let shared = Shared {
        left: AtomicU32::new(plan.statements),
        stop: AtomicBool::new(false),
        stop_early: plan.stop_early,
    };
    let shared = &shared;
    let mut outcome = Outcome::default();
    thread::scope(|scope| {
        let lanes: Vec<_> =
            lanes.drain(..).map(|lane| scope.spawn(move || lane.run(shared))).collect();
        for lane in lanes {
            outcome.add(lane.join().expect("a lane tells what it finds and does not panic"));
        }
    });
    if outcome.findings.is_empty() {
        outcome.findings = final_findings(&cluster, start, &outcome.confirmed);
    }
    // What was refused is judged by its SQLSTATE. The log says before the severity who was told.
    for severity in ["ERROR", "WARNING"] {
        cluster.allow_log(&format!("test {DATABASE} {severity}:  "));
    }
    outcome
}

/// What only the whole ledger shows: rows that no transaction accounts for, and intervals that
/// nobody closes.
fn final_findings(
    cluster: &Cluster,
    start: Mark,
    confirmed: &BTreeSet<(u64, Oid, Oid)>,
) -> Vec<String> {
    let mut findings = Vec::new();
    let mut session = cluster.session(DATABASE);
    // A session that has ended lets its locks go a moment later.
    wait_until(
        &mut session,
        "SELECT count(*) = 1 FROM pg_stat_activity \
          WHERE datname = current_database() AND backend_type = 'client backend'",
    );
    session.exec("CREATE TABLE public.last ()");
    session.exec("VACUUM public.last");
    let told = Entry::since(&mut session, start, Scope::Users);
    let unknown = told
        .iter()
        .filter(|entry| matches!(entry.effect, Effect::Replaced | Effect::Dropped))
        .filter(|entry| !confirmed.contains(&(entry.xid, entry.relation, entry.filenode)));
    findings.extend(unknown.map(|entry| format!("no transaction accounts for {entry:?}")));
    let open =
        session.number("SELECT count(*) FROM stillpoint.invalidation WHERE finished_xid IS NULL");
    if open != 0 {
        findings.push(format!("{open} rows are open although nothing runs"));
    }
    findings
}
