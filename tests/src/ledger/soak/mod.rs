//! Consumers of the ledger among DDL, kills and crashes: whatever they do in whatever order, what
//! they are told covers what the catalogs say has happened.
//!
//! Workers run random statements in schemas of their own. Consumers begin backups, read the
//! ledger, end backups, lose their sessions. In between the server is restarted, stopped at once,
//! killed, or loses a backend. The truth are the files in `pg_class` right before and right after
//! a bookmark: what was there at one bookmark and is not at the next must be told, and so must the
//! new file of a relation that was there before. No consumer may be told of a gap.

mod consumer;
mod truth;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use self::consumer::{Consumer, is_lost, words};
use crate::random::Random;
use crate::wait::poll;
use crate::workload::{self, Worker};
use crate::{Cluster, ClusterOptions, Connector, DEADLINE, Session};

const DATABASE: &str = "soak";

/// How many sessions change relations.
const WORKERS: u32 = 4;

/// After how many steps of consumers, on the average, something happens to the server or to a
/// worker's session.
const CALM: u32 = 60;

/// What has happened and was found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Statements that workers have run.
    pub statements: u64,
    /// Files that the catalogs say have gone or come, each told to each consumer.
    pub changes: u64,
    /// Of those: not told.
    pub missed: u64,
    /// Files that were told.
    pub told: u64,
    /// Files that were told without a difference in the catalogs: announced, worked on in place,
    /// come and gone in between.
    pub surplus: u64,
    /// Backups that were begun.
    pub begun: u64,
    /// Backups that have ended.
    pub ended: u64,
    /// What had to be refused and was.
    pub refused: u64,
    /// Times that the server was stopped well and started.
    pub restarts: u64,
    /// Times that the server was stopped at once, or killed, or lost a backend.
    pub crashes: u64,
    /// Sessions that were ended from outside.
    pub kills: u64,
    /// What is wrong.
    pub findings: Vec<String>,
}

impl Outcome {
    fn find(&mut self, finding: String) {
        self.findings.push(finding);
    }
}

/// Runs for that long. The seed brings the choices back, and what the scheduler makes of them not
/// always.
///
/// # Panics
///
/// If the harness fails, or the server does not start again.
#[must_use]
pub fn run(duration: Duration, seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    // Without it the catalogs would grow until everything is slow.
    let options = ClusterOptions::default().preload().setting("autovacuum = on");
    let mut cluster = options.setting("autovacuum_naptime = '5s'").start();
    workload::prepare(&cluster);
    cluster.create_database(DATABASE);
    cluster.create_extension(DATABASE);
    let connector = cluster.connector(DATABASE);
    let workers: Vec<Worker> = (0..WORKERS)
        .map(|number| {
            let session = cluster.session(DATABASE);
            Worker::new(session, &format!("w{number}"), random.next()).without_unlogged()
        })
        .collect();
    let mut consumers = ["often", "seldom"]
        .map(|name| Consumer::new(name, connector.clone(), Random::new(random.next())));
    cluster.session(DATABASE).exec("CHECKPOINT");
    let shared = Shared {
        stop: AtomicBool::new(false),
        statements: AtomicU64::new(0),
        steps: AtomicU32::new(0),
        life: AtomicU32::new(0),
    };
    let mut outcome = Outcome::default();
    thread::scope(|scope| {
        let (shared, connector, cluster) = (&shared, &connector, &mut cluster);
        let workers: Vec<_> = workers
            .into_iter()
            .map(|worker| scope.spawn(move || shared.work(worker, connector)))
            .collect();
        let disturber = Random::new(random.next());
        let disturbing = scope.spawn(move || shared.disturb(cluster, connector, disturber));
        let end = Instant::now() + duration;
        while Instant::now() < end && outcome.findings.len() < 10 {
            // The second one has long intervals.
            let consumer = usize::from(random.below(12) == 0);
            step(&mut consumers[consumer], shared, connector, &mut outcome);
        }
        shared.stop.store(true, Ordering::Relaxed);
        outcome.findings.extend(
            workers.into_iter().filter_map(|worker| worker.join().expect("no worker panics")),
        );
        let disturbed = disturbing.join().expect("the server starts again");
        outcome.restarts += disturbed.restarts;
        outcome.crashes += disturbed.crashes;
        outcome.kills += disturbed.kills;
    });
    outcome.statements = shared.statements.load(Ordering::Relaxed);
    // Who was told what is judged by its SQLSTATE.
    cluster.forget_log();
    outcome
}

/// A step of a consumer; waits for the server where that is away.
fn step(consumer: &mut Consumer, shared: &Shared, connector: &Connector, outcome: &mut Outcome) {
    let life = shared.life.load(Ordering::SeqCst);
    if let Err(error) = consumer.step(life, outcome) {
        if is_lost(&error) {
            consumer.leave();
            drop(reconnect(connector));
        } else {
            outcome.find(words(&error));
        }
    }
    shared.steps.fetch_add(1, Ordering::Relaxed);
}

/// Connects as soon as the server lets it.
fn reconnect(connector: &Connector) -> Session {
    poll(DEADLINE, || connector.connect().ok()).expect("the server comes back")
}

/// What all threads share.
struct Shared {
    stop: AtomicBool,
    statements: AtomicU64,
    /// Of consumers.
    steps: AtomicU32,
    /// See [`truth::Around`].
    life: AtomicU32,
}

impl Shared {
    /// Lets a worker work until all stop; gives what it has found.
    fn work(&self, mut worker: Worker, connector: &Connector) -> Option<String> {
        while !self.stop.load(Ordering::Relaxed) {
            let mut done = worker.step();
            while let Err(error) = done {
                if !is_lost(&error) {
                    return Some(words(&error));
                }
                done = worker.go_on_with(reconnect(connector));
            }
            self.statements.fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    /// Restarts the server in one of several ways or ends a session, until all stop.
    fn disturb(&self, cluster: &mut Cluster, connector: &Connector, mut random: Random) -> Outcome {
        let mut outcome = Outcome::default();
        loop {
            let next = self.steps.load(Ordering::Relaxed) + 1 + random.below(2 * CALM);
            let is_over = poll(DEADLINE, || {
                let is_over = self.stop.load(Ordering::Relaxed);
                (is_over || self.steps.load(Ordering::Relaxed) >= next).then_some(is_over)
            });
            match is_over {
                Some(true) => return outcome,
                Some(false) => {}
                None => continue,
            }
            // The hardest comes first, so that no run is without.
            match if outcome.crashes == 0 { 0 } else { random.below(10) } {
                0 => self.crash(&mut outcome, || {
                    cluster.kill();
                    cluster.start_server();
                }),
                1 => self.crash(&mut outcome, || {
                    cluster.stop_immediate();
                    cluster.start_server();
                }),
                2 => self.crash(&mut outcome, || {
                    let victim = reconnect(connector);
                    cluster.kill_backend(victim.pid());
                }),
                3 => {
                    cluster.restart();
                    outcome.restarts += 1;
                }
                _ => outcome.kills += u64::from(end_any_session(connector)),
            }
        }
    }

    fn crash(&self, outcome: &mut Outcome, crash: impl FnOnce()) {
        self.life.fetch_add(1, Ordering::SeqCst);
        crash();
        self.life.fetch_add(1, Ordering::SeqCst);
        outcome.crashes += 1;
    }
}

/// Whether there was one to be ended.
fn end_any_session(connector: &Connector) -> bool {
    let ended = reconnect(connector).try_rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
          WHERE datname = current_database() AND backend_type = 'client backend' \
            AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1",
    );
    ended.is_ok_and(|rows| !rows.is_empty())
}
