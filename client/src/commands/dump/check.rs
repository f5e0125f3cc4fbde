//! The check: every relation is compared under two snapshots, now that it can move no more.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use postgres::error::SqlState;
use stillpoint_check::{Oid, Reason, Reasons, compare};

use super::lock::{Locked, Unlocked, Worker};
use super::{AttemptEnd, Error};
use crate::manifest::{AttemptOutcome, Change, CheckMethod};
use crate::server::{ChangedRelation, Session};

/// Everything that was locked, and what was found to have moved.
pub struct Checked {
    pub locked: Locked,
    /// One for each relation that moved, harmlessly or not, ascending by OID.
    pub changes: Vec<Change>,
}

impl Checked {
    /// The relations that no longer hold what the snapshot promises.
    pub fn moved(&self) -> HashSet<Oid> {
        self.changes
            .iter()
            .filter(|change| !change.harmless)
            .map(|change| change.relation)
            .collect()
    }
}

impl Locked {
    /// Compares every table and sequence of the dump.
    ///
    /// It runs after all locks are had: what the extension or the second connection sees then
    /// is final for everything that a lock keeps still.
    pub fn check(mut self, time: &mut Duration) -> Result<Checked, AttemptEnd> {
        let start = Instant::now();
        let changes = self.changes()?;
        *time = start.elapsed();
        Ok(Checked { locked: self, changes })
    }

    /// Tells an export that a renamed schema has spoilt, in spite of our locks, from one that
    /// can never work.
    ///
    /// The failed worker's transaction can be asked nothing more, so it is always plain SQL that
    /// compares here.
    pub fn explain(&mut self, error: Error) -> AttemptEnd {
        match &error {
            // The other table can lack a column, or be one that we may not read.
            Error::Rows { source, .. } if source.is_moved_name() => {}
            Error::Rows { source, .. } if source.is_lock_failure() => {
                return AttemptEnd::over(AttemptOutcome::LockTimeout, error);
            }
            _ => return AttemptEnd::Fatal(error),
        }
        let all = self.all_relations();
        let found = self.second_session().and_then(|mut second| {
            Ok((by_two_snapshots(self.resolved.session(), &mut second, &all)?, second))
        });
        match found
            .map_err(AttemptEnd::from)
            .and_then(|(found, second)| self.describe(&found, Some(second)))
        {
            Ok(changes) if changes.iter().any(|change| !change.harmless) => {
                AttemptEnd::moved(changes)
            }
            Ok(_) => AttemptEnd::Fatal(error),
            Err(end) => end,
        }
    }

    fn changes(&mut self) -> Result<Vec<Change>, AttemptEnd> {
        let plain = self.resolved.snapshot.connected.check == CheckMethod::Plain;
        let unlocked: Vec<Oid> = self
            .workers
            .iter()
            .flat_map(|worker| worker.unlocked.keys())
            .chain(self.unlocked_sequences.keys())
            .copied()
            .collect();
        let by_sql = if plain { self.all_relations() } else { unlocked };

        let mut found = if plain { Vec::new() } else { self.by_extension()? };
        let mut latest = None;
        if !by_sql.is_empty() {
            let mut second = self.second_session()?;
            found.extend(by_two_snapshots(self.resolved.session(), &mut second, &by_sql)?);
            latest = Some(second);
        }
        self.add_unlocked(&mut found)?;
        found.sort_unstable_by_key(|changed| changed.relation);
        self.describe(&found, latest)
    }

    fn all_relations(&self) -> Vec<Oid> {
        let tables = self.workers.iter().flat_map(|worker| &worker.relations);
        let sequences = self.sequences.iter().map(|sequence| sequence.relation);
        tables.map(|row| row.relation).chain(sequences).collect()
    }

    /// Each session asks about the relations that it holds locks on.
    fn by_extension(&mut self) -> Result<Vec<ChangedRelation>, Error> {
        let sequences: Vec<Oid> = self
            .sequences
            .iter()
            .map(|sequence| sequence.relation)
            .filter(|relation| !self.unlocked_sequences.contains_key(relation))
            .collect();
        let main = self.resolved.session();
        let workers = &mut self.workers;
        let answers: Vec<Result<Vec<ChangedRelation>, Error>> = std::thread::scope(|scope| {
            let mut threads: Vec<_> = workers
                .iter_mut()
                .map(|worker| scope.spawn(|| worker.changed_relations()))
                .collect();
            threads.push(scope.spawn(|| changed(main, &sequences)));
            threads.into_iter().map(super::join).collect()
        });
        Ok(answers.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// A new session outside the snapshot.
    fn second_session(&mut self) -> Result<Session, Error> {
        self.resolved.second_session()
    }

    /// A relation that could not be locked has moved, even if it looks unmoved by now: its name
    /// meant something else when it was asked for. Unless the server's complaint was a real one.
    fn add_unlocked(&mut self, found: &mut Vec<ChangedRelation>) -> Result<(), AttemptEnd> {
        let tables = self.workers.iter_mut().map(|worker| ('r', &mut worker.unlocked));
        let all: Vec<(char, &mut Unlocked)> =
            tables.chain([('S', &mut self.unlocked_sequences)]).collect();
        for (kind, unlocked) in all {
            let seen: HashSet<Oid> = found
                .iter()
                .filter(|changed| !is_harmless(changed, kind))
                .map(|changed| changed.relation)
                .collect();
            for (relation, error) in unlocked {
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
        &mut self,
        found: &[ChangedRelation],
        latest: Option<Session>,
    ) -> Result<Vec<Change>, AttemptEnd> {
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let sequences: HashSet<Oid> =
            self.sequences.iter().map(|sequence| sequence.relation).collect();
        let wanted: Vec<Oid> = found
            .iter()
            .flat_map(|changed| changed.ancestors.iter().chain([&changed.relation]))
            .copied()
            .collect();
        let mut names = self.resolved.session().relation_names(&wanted)?;
        let unknown: Vec<Oid> =
            wanted.into_iter().filter(|relation| !names.contains_key(relation)).collect();
        if !unknown.is_empty() {
            // A parent that is younger than the snapshot.
            let mut latest = match latest {
                Some(session) => session,
                None => self.second_session()?,
            };
            names.extend(latest.relation_names(&unknown)?);
        }
        Ok(found
            .iter()
            .filter_map(|changed| {
                let kind = if sequences.contains(&changed.relation) { 'S' } else { 'r' };
                let reasons = relevant_reasons(changed.reasons, kind);
                let (schema, name) = names
                    .get(&changed.relation)
                    .cloned()
                    .unwrap_or_else(|| nameless(changed.relation));
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
}

impl Worker {
    fn changed_relations(&mut self) -> Result<Vec<ChangedRelation>, Error> {
        let locked: Vec<Oid> = self
            .relations
            .iter()
            .map(|row| row.relation)
            .filter(|relation| !self.unlocked.contains_key(relation))
            .collect();
        changed(&mut self.session, &locked)
    }
}

fn changed(session: &mut Session, relations: &[Oid]) -> Result<Vec<ChangedRelation>, Error> {
    if relations.is_empty() {
        return Ok(Vec::new());
    }
    Ok(session.changed_relations(relations)?)
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
