//! Locking: every worker takes all the locks that it will need, before anything is read.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use stillpoint_check::Oid;

use super::ddl::Described;
use super::deal::deal;
use super::snapshot::Resolved;
use super::{AttemptEnd, Error, Options, Timings};
use crate::archive::Toc;
use crate::manifest::AttemptOutcome;
use crate::quote::quote_qualified;
use crate::server::{self, Blocker, RelationRow, SequenceValue, Session};

/// How many relations one statement asks for.
const BATCH: usize = 1000;

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

/// A sequence of the dump.
#[derive(Clone, Debug)]
pub struct Sequence {
    pub relation: Oid,
    pub schema: String,
    pub name: String,
    /// Its row, if it is part of an extension's configuration and not described in the archive.
    pub configuration: Option<RelationRow>,
}

/// What can be locked is locked, but may not be what the snapshot promises.
pub struct Locked {
    pub resolved: Resolved,
    pub toc: Toc,
    pub workers: Vec<Worker>,
    pub sequences: Vec<Sequence>,
    pub values: Vec<SequenceValue>,
    pub unlocked_sequences: Unlocked,
}

/// How long an attempt's locks may be waited for, all together.
#[derive(Clone, Copy)]
struct Budget {
    start: Instant,
    total: Duration,
}

impl Budget {
    fn remaining(self) -> Duration {
        self.total.saturating_sub(self.start.elapsed())
    }
}

impl Described {
    /// Deals the relations to workers and lets each lock its own; reads the sequences, which
    /// cannot be locked but by reading them.
    pub fn lock(self, options: &Options, timings: &mut Timings) -> Result<Locked, AttemptEnd> {
        let budget = Budget { start: Instant::now(), total: options.lock_timeout };
        let Self { mut resolved, toc } = self;
        let mut relations = std::mem::take(&mut resolved.selected.relations);
        let unreadable = unreadable(&mut resolved, &relations)?;
        relations.retain(|row| !unreadable.contains(&row.relation));
        let (tables, others): (Vec<_>, Vec<_>) =
            relations.into_iter().filter(|row| row.kind != 'p').partition(|row| row.kind == 'r');

        let mut workers = Vec::new();
        let first = resolved.session().fingerprint()?;
        for relations in deal(tables, options.jobs) {
            let session = resolved.worker(&first)?;
            workers.push(Worker { session, relations, unlocked: Unlocked::new() });
        }
        let outcomes: Vec<Result<(), AttemptEnd>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                workers.iter_mut().map(|worker| scope.spawn(|| worker.lock(budget))).collect();
            threads.into_iter().map(super::join).collect()
        });
        outcomes.into_iter().collect::<Result<(), _>>()?;

        let mut sequences = sequences(&toc, &others);
        sequences.retain(|sequence| !unreadable.contains(&sequence.relation));
        let mut values = Vec::new();
        let mut unlocked_sequences = Unlocked::new();
        let session = resolved.session();
        let named: Vec<(Oid, String)> = sequences.iter().map(Sequence::quoted).collect();
        let mut read = |session: &mut Session, batch: &[(Oid, &str)]| {
            values.extend(session.sequence_values(batch)?);
            Ok(())
        };
        for batch in named.chunks(BATCH) {
            session.bound_statements(budget.remaining())?;
            take_or_split(session, batch, &mut unlocked_sequences, budget, &mut read)?;
        }
        session.bound_locks(options.lock_timeout)?;
        note_others(session, sequences.iter().map(|s| s.relation), &mut unlocked_sequences)?;

        timings.lock = budget.start.elapsed();
        Ok(Locked { resolved, toc, workers, sequences, values, unlocked_sequences })
    }
}

impl Sequence {
    fn quoted(&self) -> (Oid, String) {
        (self.relation, quote_qualified(&self.schema, &self.name))
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
}

/// Locks a batch by what `take` does, or, where a name of it no longer means what it meant, its
/// halves.
fn take_or_split<Take>(
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
fn note_others(
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

/// Relations that hold nothing on this server: a standby has no rows of unlogged tables. As
/// `pg_dump` does, the dump gives their definitions alone.
fn unreadable(resolved: &mut Resolved, relations: &[RelationRow]) -> Result<HashSet<Oid>, Error> {
    if !resolved.snapshot.connected.identity.in_recovery {
        return Ok(HashSet::new());
    }
    let unlogged = resolved.session().unlogged_relations()?;
    for row in relations.iter().filter(|row| unlogged.contains(&row.relation)) {
        tracing::warn!("table {} is unlogged: a standby has no rows of it", row.quoted());
    }
    Ok(unlogged)
}

/// The sequences that `pg_dump` has described, and those of extensions' configurations.
fn sequences(toc: &Toc, configuration: &[RelationRow]) -> Vec<Sequence> {
    let described = toc.sequences().into_iter().map(|described| Sequence {
        relation: described.oid,
        schema: described.schema,
        name: described.name,
        configuration: None,
    });
    let configured = configuration.iter().filter(|row| row.kind == 'S').map(|row| Sequence {
        relation: row.relation,
        schema: row.schema.clone(),
        name: row.name.clone(),
        configuration: Some(row.clone()),
    });
    described.chain(configured).collect()
}
