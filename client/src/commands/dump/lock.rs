//! Locking: every worker takes all the locks that it will need, before anything is read.

use std::collections::HashMap;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use stillpoint_check::Oid;

use super::snapshot::Peers;
use super::{AttemptEnd, Error, Options, Timings};
use crate::manifest::{AttemptOutcome, CheckMethod};
use crate::server::{self, Blocker, RelationRow, Session};

/// How many relations one statement asks for.
pub const BATCH: usize = 1000;

/// Relations that could not be locked by the name that the snapshot has for them, with what the
/// server said; without that where a lock was had, but on another relation of that name.
pub type Unlocked = HashMap<Oid, Option<server::Error>>;

/// A session in the dump's snapshot with the relations that it locks, checks and exports.
pub struct Worker {
    pub session: Session,
    /// Smallest first.
    pub relations: Vec<RelationRow>,
    pub unlocked: Unlocked,
}

/// The tables of the dump in the hands of the workers.
pub struct Tables {
    pub workers: Vec<Worker>,
    pub peers: Peers,
    pub method: CheckMethod,
    /// The encoding of their rows in the archive.
    pub encoding: &'static str,
}

/// No table is locked.
pub struct Dealt(pub Tables);

/// What can be locked is locked, but may not be what the snapshot promises.
pub struct Locked(pub Tables);

/// What comes of locking without waiting.
pub enum AtOnce {
    Locked(Locked),
    /// Somebody is in the way; no table is locked.
    InTheWay(Dealt),
}

/// How long an attempt's locks may be waited for, all together.
#[derive(Clone, Copy)]
pub struct Budget {
    start: Instant,
    total: Duration,
}

impl Budget {
    pub fn begin(options: &Options) -> Self {
        Self { start: Instant::now(), total: options.lock_timeout }
    }

    pub fn remaining(self) -> Duration {
        self.total.saturating_sub(self.start.elapsed())
    }
}

impl Dealt {
    /// What `pg_dump` must hold before it can be locked beside it; nothing if it must not be.
    ///
    /// An extension's condition on the rows of its table may read, and hence lock, anything:
    /// `pg_dump` could come to wait for that.
    pub fn beside(&self) -> Option<Vec<Oid>> {
        let rows = || self.0.workers.iter().flat_map(|worker| &worker.relations);
        let is_query = |row: &RelationRow| {
            row.configuration.as_ref().is_some_and(|(_, condition)| !condition.is_empty())
        };
        let oids: Vec<Oid> = rows().map(|row| row.relation).collect();
        (!oids.is_empty() && !rows().any(is_query)).then_some(oids)
    }

    /// Lets each worker lock its relations, within the budget.
    pub fn lock(mut self, budget: Budget, timings: &mut Timings) -> Result<Locked, AttemptEnd> {
        self.each(timings, |worker| worker.lock(budget))?;
        Ok(Locked(self.0))
    }

    /// Lets each worker lock its relations without waiting for any lock. If a lock is not to be
    /// had at once, or is on another relation than under the snapshot, all locks are given back:
    /// somebody is in the way, and must not be waited for while `pg_dump` runs.
    pub fn lock_at_once(
        mut self,
        options: &Options,
        timings: &mut Timings,
    ) -> Result<AtOnce, AttemptEnd> {
        let had = self.each(timings, Worker::lock_at_once)?;
        if had.iter().all(|had| *had) {
            for worker in &mut self.0.workers {
                worker.session.release_savepoint()?;
                worker.session.bound_locks(options.lock_timeout)?;
            }
            return Ok(AtOnce::Locked(Locked(self.0)));
        }
        for (worker, had) in self.0.workers.iter_mut().zip(had) {
            if had {
                worker.session.back_to_savepoint()?;
            }
        }
        Ok(AtOnce::InTheWay(self))
    }

    fn each<T: Send>(
        &mut self,
        timings: &mut Timings,
        lock: impl Fn(&mut Worker) -> Result<T, AttemptEnd> + Sync,
    ) -> Result<Vec<T>, AttemptEnd> {
        let start = Instant::now();
        let outcomes: Vec<Result<T, AttemptEnd>> = std::thread::scope(|scope| {
            let lock = &lock;
            let threads: Vec<ScopedJoinHandle<'_, _>> =
                self.0.workers.iter_mut().map(|worker| scope.spawn(move || lock(worker))).collect();
            threads.into_iter().map(super::join).collect()
        });
        timings.lock += start.elapsed();
        outcomes.into_iter().collect()
    }
}

impl Worker {
    fn lock(&mut self, budget: Budget) -> Result<(), AttemptEnd> {
        let named: Vec<(Oid, String)> =
            self.relations.iter().map(|row| (row.relation, row.quoted())).collect();
        let mut lock = |session: &mut Session, batch: &[(Oid, &str)]| {
            session.lock(&batch.iter().map(|(_, name)| *name).collect::<Vec<_>>())
        };
        for batch in named.chunks(BATCH) {
            self.session.bound_statements(budget.remaining())?;
            take_or_split(&mut self.session, batch, &mut self.unlocked, budget, &mut lock)?;
        }
        // COPY may take its time, but still waits for a lock for a moment where VACUUM cuts off
        // the end of a table's TOAST.
        self.session.bound_locks(budget.total)?;
        let all = self.relations.iter().map(|row| row.relation);
        note_others(&mut self.session, all, &mut self.unlocked)?;
        Ok(())
    }

    /// Gives false, and has no locks, if not all are to be had at once. With them, the caller's
    /// savepoint is set.
    fn lock_at_once(&mut self) -> Result<bool, AttemptEnd> {
        let session = &mut self.session;
        session.savepoint()?;
        let names: Vec<String> = self.relations.iter().map(RelationRow::quoted).collect();
        for batch in names.chunks(BATCH) {
            let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
            if let Err(error) = session.lock_at_once(&batch) {
                tracing::debug!("not beside pg_dump: {error}");
                session.back_to_savepoint().map_err(|_| error)?;
                return Ok(false);
            }
        }
        let locked = session.locked_relations()?;
        if self.relations.iter().all(|row| locked.contains(&row.relation)) {
            return Ok(true);
        }
        session.back_to_savepoint()?;
        Ok(false)
    }
}

/// Locks a batch by what `take` does, or, where a name of it no longer means what it meant, its
/// halves.
pub fn take_or_split<Take>(
    session: &mut Session,
    batch: &[(Oid, String)],
    unlocked: &mut Unlocked,
    budget: Budget,
    take: &mut Take,
) -> Result<(), AttemptEnd>
where
    Take: FnMut(&mut Session, &[(Oid, &str)]) -> Result<(), server::Error>,
{
    let named: Vec<(Oid, &str)> = batch.iter().map(|(oid, name)| (*oid, name.as_str())).collect();
    match take(session, &named) {
        Ok(()) => Ok(()),
        Err(error) if error.is_moved_name() => {
            if let [(relation, _)] = batch {
                unlocked.insert(*relation, Some(error));
                return Ok(());
            }
            let (left, right) = batch.split_at(batch.len() / 2);
            take_or_split(session, left, unlocked, budget, take)?;
            take_or_split(session, right, unlocked, budget, take)
        }
        Err(error)
            if error.is_lock_failure()
                || (error.is_cancelled() && budget.remaining() == Duration::ZERO) =>
        {
            let oids: Vec<Oid> = batch.iter().map(|(relation, _)| *relation).collect();
            let blockers = session.blockers(&oids)?;
            let blockers = blockers.iter().map(|blocker| name_blocker(blocker, batch)).collect();
            Err(AttemptEnd::over(
                AttemptOutcome::LockTimeout,
                Error::LockTimeout { blockers, source: error },
            ))
        }
        Err(error) => Err(error.into()),
    }
}

fn name_blocker(blocker: &Blocker, batch: &[(Oid, String)]) -> String {
    match batch.iter().find(|(relation, _)| Some(*relation) == blocker.relation) {
        Some((_, name)) => format!("{name}: {blocker}"),
        None => blocker.to_string(),
    }
}

/// A name can be locked and mean another relation than under the snapshot: what counts is which
/// relations the session holds locks on.
pub fn note_others(
    session: &mut Session,
    relations: impl Iterator<Item = Oid>,
    unlocked: &mut Unlocked,
) -> Result<(), Error> {
    let locked = session.locked_relations()?;
    for relation in relations {
        if !locked.contains(&relation) {
            unlocked.entry(relation).or_insert(None);
        }
    }
    Ok(())
}
