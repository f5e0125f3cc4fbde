//! The check: every relation is compared under two snapshots, now that it can move no more.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use stillpoint_check::{Oid, Reason, Reasons, compare};
use tokio_postgres::error::SqlState;

use super::lock::{Locked, Tables, Unlocked, Worker};
use super::sequences::{Sequences, Valued};
use super::snapshot::Peers;
use super::{AttemptEnd, Error, Timings};
use crate::manifest::{AttemptOutcome, Change, CheckMethod};
use crate::server::{ChangedRelation, Session};

/// The tables that were locked, and what was found to have moved.
pub struct Checked {
    pub locked: Locked,
    /// One for each table that moved, harmlessly or not, ascending by OID.
    pub changes: Vec<Change>,
}

/// The definitions and the values of sequences, and what was found to have moved.
pub struct Defined {
    pub valued: Valued,
    /// One for each sequence that moved, harmlessly or not, ascending by OID.
    pub changes: Vec<Change>,
}

/// The relations that no longer hold what the snapshot promises.
pub fn moved(changes: &[Change]) -> HashSet<Oid> {
    changes.iter().filter(|change| !change.harmless).map(|change| change.relation).collect()
}

impl Locked {
    /// Compares every table of the dump.
    ///
    /// It runs after all their locks are had: what the extension or the second connection sees
    /// then is final for everything that a lock keeps still.
    pub fn check(mut self, timings: &mut Timings) -> Result<Checked, AttemptEnd> {
        let start = Instant::now();
        let changes = self.changes()?;
        timings.check += start.elapsed();
        Ok(Checked { locked: self, changes })
    }

    /// One for each table that differs from what the snapshot promises.
    pub fn changes(&mut self) -> Result<Vec<Change>, AttemptEnd> {
        let Tables { workers, peers, method, .. } = &mut self.0;
        let mut parties: Vec<Party<'_>> = workers.iter_mut().map(Party::from).collect();
        changes(&mut parties, peers, *method)
    }

    /// Tells an export that a renamed schema has spoilt, in spite of our locks, from one that
    /// can never work.
    ///
    /// The failed worker's transaction can be asked nothing more, so it is always plain SQL in a
    /// new session that compares here.
    pub fn explain(&self, error: Error) -> AttemptEnd {
        match &error {
            // The other table can lack a column, or be one that we may not read.
            Error::Rows { source, .. } if source.is_moved_name() => {}
            Error::Rows { source, .. } if source.is_lock_failure() => {
                return AttemptEnd::over(AttemptOutcome::LockTimeout, error);
            }
            _ => return AttemptEnd::Fatal(error),
        }
        match self.changes_in_a_new_session() {
            Ok(changes) if !moved(&changes).is_empty() => AttemptEnd::moved(changes),
            Ok(_) => AttemptEnd::Fatal(error),
            Err(end) => end,
        }
    }

    fn changes_in_a_new_session(&self) -> Result<Vec<Change>, AttemptEnd> {
        let Tables { workers, peers, .. } = &self.0;
        let mut session = peers.under_snapshot()?;
        let rows = workers.iter().flat_map(|worker| &worker.relations);
        let party = Party {
            session: &mut session,
            kind: 'r',
            relations: rows.map(|row| row.relation).collect(),
            unlocked: &mut Unlocked::new(),
        };
        changes(&mut [party], peers, CheckMethod::Plain)
    }
}

impl Valued {
    /// Compares every sequence of the dump, as [`Locked::check`] does tables.
    pub fn check(mut self, timings: &mut Timings) -> Result<Defined, AttemptEnd> {
        let start = Instant::now();
        let changes = self.changes()?;
        timings.check += start.elapsed();
        Ok(Defined { valued: self, changes })
    }

    /// One for each sequence that differs from what the snapshot promises.
    pub fn changes(&mut self) -> Result<Vec<Change>, AttemptEnd> {
        let (peers, method) = (self.peers.clone(), self.snapshot.connected.check);
        changes(&mut [self.party()], &peers, method)
    }

    fn party(&mut self) -> Party<'_> {
        let Sequences { all, unlocked, .. } = &mut self.sequences;
        Party {
            session: &mut self.snapshot.connected.session,
            kind: 'S',
            relations: all.iter().map(|sequence| sequence.relation).collect(),
            unlocked,
        }
    }
}

/// A session under the snapshot with the relations that it holds locks on.
struct Party<'a> {
    session: &'a mut Session,
    /// `r` for tables, `S` for sequences.
    kind: char,
    relations: Vec<Oid>,
    unlocked: &'a mut Unlocked,
}

impl<'a> From<&'a mut Worker> for Party<'a> {
    fn from(worker: &'a mut Worker) -> Self {
        let Worker { session, relations, unlocked } = worker;
        let relations = relations.iter().map(|row| row.relation).collect();
        Self { session, kind: 'r', relations, unlocked }
    }
}

impl Party<'_> {
    /// Asks the extension about what this session has locked.
    fn changed_relations(&mut self) -> Result<Vec<ChangedRelation>, Error> {
        let locked: Vec<Oid> = self
            .relations
            .iter()
            .filter(|relation| !self.unlocked.contains_key(relation))
            .copied()
            .collect();
        if locked.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.session.changed_relations(&locked)?)
    }
}

fn changes(
    parties: &mut [Party<'_>],
    peers: &Peers,
    method: CheckMethod,
) -> Result<Vec<Change>, AttemptEnd> {
    compare_all(parties, peers, method).map_err(|end| match parties.first_mut() {
        Some(first) => end.naming_blockers(first.session),
        None => end,
    })
}

fn compare_all(
    parties: &mut [Party<'_>],
    peers: &Peers,
    method: CheckMethod,
) -> Result<Vec<Change>, AttemptEnd> {
    let plain = method == CheckMethod::Plain;
    let by_sql: Vec<Oid> = if plain {
        parties.iter().flat_map(|party| &party.relations).copied().collect()
    } else {
        parties.iter().flat_map(|party| party.unlocked.keys()).copied().collect()
    };
    let mut found = if plain { Vec::new() } else { by_extension(parties)? };
    let mut latest = None;
    if let Some(first) = parties.first_mut()
        && !by_sql.is_empty()
    {
        let mut second = peers.outside()?;
        found.extend(by_two_snapshots(first.session, &mut second, &by_sql)?);
        latest = Some(second);
    }
    add_unlocked(parties, &mut found)?;
    found.sort_unstable_by_key(|changed| changed.relation);
    describe(parties, peers, &found, latest)
}

/// Each session asks about the relations that it holds locks on.
fn by_extension(parties: &mut [Party<'_>]) -> Result<Vec<ChangedRelation>, Error> {
    let answers: Vec<Result<Vec<ChangedRelation>, Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            parties.iter_mut().map(|party| scope.spawn(|| party.changed_relations())).collect();
        threads.into_iter().map(super::join).collect()
    });
    Ok(answers.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
}

/// A relation that could not be locked has moved, even if it looks unmoved by now: its name
/// meant something else when it was asked for. Unless the server's complaint was a real one.
fn add_unlocked(
    parties: &mut [Party<'_>],
    found: &mut Vec<ChangedRelation>,
) -> Result<(), AttemptEnd> {
    for Party { kind, unlocked, .. } in parties {
        let seen: HashSet<Oid> = found
            .iter()
            .filter(|changed| !is_harmless(changed, *kind))
            .map(|changed| changed.relation)
            .collect();
        for (relation, error) in unlocked.iter_mut() {
            if seen.contains(relation) {
                continue;
            }
            match error.take() {
                Some(error) if !is_about_a_name(error.code()) => return Err(error.into()),
                _ => add_reason(found, *relation, Reason::Renamed),
            }
        }
    }
    Ok(())
}

fn describe(
    parties: &mut [Party<'_>],
    peers: &Peers,
    found: &[ChangedRelation],
    latest: Option<Session>,
) -> Result<Vec<Change>, AttemptEnd> {
    let sequences: HashSet<Oid> = parties
        .iter()
        .filter(|party| party.kind == 'S')
        .flat_map(|party| party.relations.iter().copied())
        .collect();
    let Some(first) = parties.first_mut().filter(|_| !found.is_empty()) else {
        return Ok(Vec::new());
    };
    let wanted: Vec<Oid> = found
        .iter()
        .flat_map(|changed| changed.ancestors.iter().chain([&changed.relation]))
        .copied()
        .collect();
    let mut names = first.session.relation_names(&wanted)?;
    let unknown: Vec<Oid> =
        wanted.into_iter().filter(|relation| !names.contains_key(relation)).collect();
    if !unknown.is_empty() {
        // A parent that is younger than the snapshot.
        let mut latest = match latest {
            Some(session) => session,
            None => peers.outside()?,
        };
        names.extend(latest.relation_names(&unknown)?);
    }
    Ok(found
        .iter()
        .filter_map(|changed| {
            let kind = if sequences.contains(&changed.relation) { 'S' } else { 'r' };
            let reasons = relevant_reasons(changed.reasons, kind);
            let (schema, name) =
                names.get(&changed.relation).cloned().unwrap_or_else(|| nameless(changed.relation));
            let ancestors = changed.ancestors.iter().map(|ancestor| {
                let (schema, name) =
                    names.get(ancestor).cloned().unwrap_or_else(|| nameless(*ancestor));
                format!("{schema}.{name}")
            });
            (!reasons.is_empty()).then(|| Change {
                relation: changed.relation,
                schema,
                name,
                reasons: reasons.iter().map(|reason| reason.as_str().to_owned()).collect(),
                rows_kept: changed.rows_kept,
                harmless: is_harmless(changed, kind),
                ancestors: ancestors.collect(),
            })
        })
        .collect())
}

/// The check by plain SQL: one catalog query under the dump's snapshot and under a later one.
fn by_two_snapshots(
    snapshot: &mut Session,
    latest: &mut Session,
    relations: &[Oid],
) -> Result<Vec<ChangedRelation>, Error> {
    let (then, now) = std::thread::scope(|scope| {
        let then = scope.spawn(|| Ok::<_, Error>(snapshot.relation_states(relations)?));
        let now = latest.relation_states(relations);
        (super::join(then), now)
    });
    let (then, now) = (then?, now?);
    let gone: Vec<(&str, &str)> = then
        .values()
        .filter(|state| !now.get(&state.relation).is_some_and(|now| state.is_named_like(now)))
        .map(|state| (state.schema_name.as_str(), state.relation_name.as_str()))
        .collect();
    let heirs = latest.relations_named(&gone)?;
    let reasons: HashMap<Oid, Reasons> = then
        .values()
        .map(|state| {
            let name = (state.schema_name.clone(), state.relation_name.clone());
            let reasons = compare(state, now.get(&state.relation), heirs.get(&name).copied());
            (state.relation, reasons)
        })
        .filter(|(_, reasons)| !reasons.is_empty())
        .collect();

    let moved: Vec<Oid> = reasons.keys().copied().collect();
    let mut ancestors = snapshot.ancestors(&moved)?;
    for (relation, now) in latest.ancestors(&moved)? {
        let all = ancestors.entry(relation).or_default();
        all.extend(now);
        all.sort_unstable();
        all.dedup();
    }
    Ok(reasons
        .into_iter()
        .map(|(relation, reasons)| ChangedRelation {
            relation,
            reasons,
            rows_kept: false,
            ancestors: ancestors.remove(&relation).unwrap_or_default(),
        })
        .collect())
}

/// Adds a reason to what was found of a relation, if anything was.
fn add_reason(found: &mut Vec<ChangedRelation>, relation: Oid, reason: Reason) {
    if let Some(changed) = found.iter_mut().find(|changed| changed.relation == relation) {
        changed.reasons.insert(reason);
        return;
    }
    found.push(ChangedRelation {
        relation,
        reasons: [reason].into_iter().collect(),
        rows_kept: false,
        ancestors: Vec::new(),
    });
}

/// A sequence's value is no matter of snapshots: it is read as it is, and whether its storage
/// was replaced meanwhile does not matter.
fn relevant_reasons(reasons: Reasons, kind: char) -> Reasons {
    reasons.iter().filter(|reason| kind != 'S' || *reason != Reason::Replaced).collect()
}

/// Whether the rows are the snapshot's although the relation has changed: every table is
/// exported by itself, so that another parent, or one less, is no matter.
fn is_harmless(changed: &ChangedRelation, kind: char) -> bool {
    relevant_reasons(changed.reasons, kind).iter().all(|reason| match reason {
        Reason::Attached | Reason::Detached => true,
        Reason::Replaced => changed.rows_kept,
        _ => false,
    })
}

/// Whether an error says that a name means nothing, or something that is no table.
fn is_about_a_name(code: Option<&SqlState>) -> bool {
    code.is_some_and(|code| {
        [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME, SqlState::WRONG_OBJECT_TYPE]
            .contains(code)
    })
}

fn nameless(relation: Oid) -> (String, String) {
    (String::from("?"), format!("relation with OID {relation}"))
}
