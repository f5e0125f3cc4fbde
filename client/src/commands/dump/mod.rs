//! `dump`: a logical export whose every table is proven to hold what one snapshot promises.
//!
//! Data flows one way, and each stage takes the former's value, so that nothing can be exported
//! that was not checked. `pg_dump` starts as soon as the user's words are resolved:
//!
//! connect → [`Snapshot`](snapshot::Snapshot) → [`Resolved`](snapshot::Resolved) →
//! [`Started`](ddl::Started) → [`Describing`](ddl::Describing) and [`Dealt`](lock::Dealt)
//!
//! From there on there are two sides, which [`Order`] lets run beside each other if it can. The
//! definitions, in the session that holds the snapshot:
//!
//! [`Describing`](ddl::Describing) → [`Described`](ddl::Described) →
//! [`Valued`](sequences::Valued) → [`Defined`](check::Defined)
//!
//! The rows, in the workers' sessions:
//!
//! [`Dealt`](lock::Dealt) → [`Locked`](lock::Locked) → [`Checked`](check::Checked) →
//! [`Verified`](export::Verified) → [`Exported`](export::Exported) →
//! [`Rechecked`](export::Rechecked)
//!
//! When both are there, they are put into one archive:
//!
//! [`Defined`](check::Defined) and [`Rechecked`](export::Rechecked) → [`Completed`] → archive
//!
//! An attempt ends where a stage finds that DDL has come in between. All its connections are
//! closed then, and the next attempt starts from the user's own words on a new snapshot.

mod check;
mod contents;
mod ddl;
mod deal;
mod error;
mod export;
mod finish;
mod lock;
mod order;
mod pg_dump;
mod report;
mod sequences;
mod snapshot;
mod stop;

use std::ops::AddAssign;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

pub use self::error::Error;
use self::error::{AttemptEnd, Over};
use self::export::Completed;
use self::order::Order;
pub use self::report::{Outcome, Report};
use self::report::{Recorder, Tried};
use self::snapshot::Connected;
use crate::codec::Compression;
use crate::connect::Target;
use crate::durable::{Tree, with_suffix};
use crate::exit::ExitStatus;
use crate::interrupt::Partial;
use crate::manifest::AttemptOutcome;
use crate::programs::{Program, Tool};
use crate::selection::{Patterns, Selection};

/// What a dump is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database.
    pub target: Target,
    /// What of it.
    pub selection: Selection,
    /// The archive's directory, which must not exist.
    pub directory: PathBuf,
    /// Sessions that lock, check and export in parallel.
    pub jobs: usize,
    /// How many snapshots are tried.
    pub attempts: u32,
    /// How long `pg_dump`, and each session of ours, may wait for a lock before the attempt is
    /// over.
    pub lock_timeout: Duration,
    /// How long to wait before the second attempt; doubles with each further one.
    pub backoff: Duration,
    /// Fail instead of leaving anything out.
    pub strict: bool,
    /// How data files are compressed.
    pub compression: Compression,
    /// Where `pg_dump` is; `None`: in the path.
    pub bindir: Option<PathBuf>,
}

/// How long the stages of an attempt took. Some of them run beside each other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    resolve: Duration,
    ddl: Duration,
    lock: Duration,
    check: Duration,
    export: Duration,
    recheck: Duration,
}

impl AddAssign for Timings {
    fn add_assign(&mut self, other: Self) {
        let Self { resolve, ddl, lock, check, export, recheck } = self;
        *resolve += other.resolve;
        *ddl += other.ddl;
        *lock += other.lock;
        *check += other.check;
        *export += other.export;
        *recheck += other.recheck;
    }
}

/// Dumps, and tells what happened; the report is there whether the dump is or not.
pub fn run(options: &Options) -> (Report, Result<ExitStatus, Error>) {
    let mut recorder = Recorder::new(options);
    let result = dump(options, &mut recorder);
    let status =
        result.map(|complete| if complete { ExitStatus::Done } else { ExitStatus::NotWhole });
    (recorder.report(status.as_ref()), status)
}

/// Gives whether the dump is whole.
fn dump(options: &Options, recorder: &mut Recorder) -> Result<bool, Error> {
    let patterns = options.selection.patterns().map_err(crate::selection::Error::from)?;
    let pg_dump = Program::find(Tool::PgDump, options.bindir.as_deref())?;
    options.compression.pg_dump_option(pg_dump.major)?;
    let partial = claim(options)?;
    let tree = Tree::open(partial.path())?;

    for number in 1..=options.attempts.max(1) {
        let last = number >= options.attempts;
        let mut tried = Tried::begin();
        let attempt = Attempt { options, patterns: &patterns, pg_dump: &pg_dump, last };
        match attempt.run(&partial, &tree, recorder, &mut tried) {
            Ok(completed) => {
                let outcome = if completed.left_out.is_empty() {
                    AttemptOutcome::Verified
                } else {
                    AttemptOutcome::LeftOut
                };
                recorder.attempt(tried, outcome, completed.changes.clone());
                return finish::finish(options, recorder, completed, partial, &tree);
            }
            Err(AttemptEnd::Fatal(error)) => {
                return Err(error);
            }
            Err(AttemptEnd::Over(over)) => {
                let Over { outcome, changes, cause } = *over;
                recorder.attempt(tried, outcome, changes);
                if last {
                    return Err(cause);
                }
                tracing::warn!("attempt {number} of {}: {cause}", options.attempts);
                partial.clear().map_err(|source| Error::File {
                    doing: "empty directory",
                    path: partial.path().to_owned(),
                    source,
                })?;
                std::thread::sleep(backoff(options.backoff, number));
            }
        }
    }
    // The loop's last round returns.
    Err(Error::Moved(Vec::new()))
}

/// Makes the directory that is to become the archive. It is made here, and alone, so that what
/// is removed after a failure is ours.
fn claim(options: &Options) -> Result<Partial, Error> {
    if options.directory.symlink_metadata().is_ok() {
        return Err(Error::Exists(options.directory.clone()));
    }
    let path = with_suffix(&options.directory, ".partial");
    // As pg_dump makes it: what is in a dump is nobody else's business.
    match std::fs::DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => Ok(Partial::guard(path)),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(Error::Unfinished(path))
        }
        Err(source) => Err(Error::File { doing: "create directory", path, source }),
    }
}

fn backoff(first: Duration, attempt: u32) -> Duration {
    const LONGEST: Duration = Duration::from_secs(60);
    first.saturating_mul(1 << (attempt - 1).min(16)).min(LONGEST)
}

struct Attempt<'a> {
    options: &'a Options,
    patterns: &'a Patterns,
    pg_dump: &'a Program,
    last: bool,
}

impl Attempt<'_> {
    /// One snapshot, from its taking to the rows in the archive's directory.
    fn run(
        &self,
        partial: &Partial,
        tree: &Tree,
        recorder: &mut Recorder,
        tried: &mut Tried,
    ) -> Result<Completed, AttemptEnd> {
        let timings = &mut tried.timings;
        let connected = Connected::new(&self.options.target)?;
        self.pg_dump.require_not_older_than_server(connected.session.version().major())?;
        recorder.connected(&connected);

        let snapshot = connected.snapshot(self.options.lock_timeout)?;
        recorder.snapshot(&snapshot.id);
        tried.snapshot = snapshot.id.to_string();
        tried.started_at = snapshot.taken_at;
        let (options, directory) = (self.options, partial.path());
        let resolved = snapshot.resolve(self.patterns, timings)?;
        let started = resolved.describe(options, self.pg_dump, directory)?;
        let (describing, dealt) = started.deal(options, timings)?;

        let leave_out = self.may_leave_out();
        let order = Order { options, directory, tree, leave_out };
        let (defined, rechecked) = order.run(describing, dealt, timings)?;
        rechecked.complete(defined, directory, leave_out, timings)
    }

    const fn may_leave_out(&self) -> bool {
        self.last && !self.options.strict
    }
}

/// The value of a worker thread; a panic in it, which would be a bug, is an error like others
/// and not the end of the process with an unfinished archive left behind.
fn join<T, E: From<Error>>(thread: ScopedJoinHandle<'_, Result<T, E>>) -> Result<T, E> {
    thread.join().unwrap_or_else(|_| Err(E::from(Error::Panic)))
}

/// Seconds since `start`, for reports.
fn seconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64()
}
