//! `changed_relations()`: what has happened to relations since the transaction's snapshot.
//!
//! The rule itself, the catalog queries and the comparison, is in `stillpoint-check`. What the
//! server adds is that both answers come from one place at one moment, and that they are final:
//!
//! 1. The locks are looked at first. Whoever changes a relation in a way that matters here
//!    holds ACCESS EXCLUSIVE on it until the end of its transaction (but for ALTER SCHEMA
//!    RENAME, and for what only attaches or detaches the relation). So once we hold any lock,
//!    such a transaction has ended before, or waits behind us.
//! 2. The latest snapshot is taken after that. A transaction leaves the list of the running
//!    ones before it lets go of its locks, on a primary (`CommitTransaction`) as on a standby
//!    (`xact_redo_commit`). So this snapshot sees all that ended before we had our lock. The
//!    other way round, a snapshot older than a lock, it would miss some.
//!
//! Both snapshots see the transaction's own changes until now. Those are no difference: the
//! transaction reads its own rows.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint_check::{
    Oid, RELATION_ANCESTORS, RELATION_NAMES, RELATION_STATE, Reason, RelationState, compare,
};

use crate::error::Refusal;
use crate::fence::{
    Answer, Call, Failure, Row, RowSet, Snapshot, Spi, Value, transaction_holds_lock_on,
    transaction_keeps_its_snapshot,
};
use crate::ledger::KeptRows;

/// The SQL function.
pub fn changed_relations(call: &Call) -> Result<Answer, Failure> {
    if !transaction_keeps_its_snapshot() {
        return Err(Refusal::SnapshotChanges.into());
    }
    let relations = relations_asked_for(call)?;
    let spi = Spi::connect();
    let mut answer = RowSet::begin(call, spi.encoding())?;

    // The order of these two is explained above.
    let not_locked: BTreeSet<Oid> =
        relations.iter().copied().filter(|&r| !transaction_holds_lock_on(r)).collect();
    let check =
        Check { spi: &spi, snapshot: Snapshot::of_transaction(), latest: Snapshot::latest() };
    for change in check.changes(&relations, &not_locked)? {
        change.put_into(&mut answer);
    }
    Ok(answer.finish())
}

/// The relations of the argument, each once.
fn relations_asked_for(call: &Call) -> Result<Vec<Oid>, Refusal> {
    let elements = call.oid_array(0).ok_or(Refusal::NoArray)?;
    let relations: Option<BTreeSet<Oid>> = elements.into_iter().collect();
    Ok(relations.ok_or(Refusal::NullElement)?.into_iter().collect())
}

/// A relation that has changed.
struct Change {
    before: RelationState,
    latest: Option<RelationState>,
    reasons: Vec<Reason>,
    ancestors: Vec<Oid>,
    rows_kept: bool,
}

impl Change {
    fn put_into(&self, answer: &mut RowSet) {
        let reasons: Vec<_> = self.reasons.iter().map(|reason| reason.as_str()).collect();
        answer.put(&[
            Value::Oid(Some(self.before.relation)),
            Value::Text(&self.before.schema_name),
            Value::Text(&self.before.relation_name),
            Value::Texts(&reasons),
            Value::Bool(self.rows_kept),
            Value::Oid(Some(self.before.filenode)),
            Value::Oid(self.latest.as_ref().map(|latest| latest.filenode)),
            Value::Oids(&self.ancestors),
        ]);
    }
}

/// The two snapshots, and the connection that reads the catalogs under them.
struct Check<'a> {
    spi: &'a Spi,
    snapshot: Snapshot,
    latest: Snapshot,
}

impl Check<'_> {
    fn changes(
        &self,
        relations: &[Oid],
        not_locked: &BTreeSet<Oid>,
    ) -> Result<Vec<Change>, Failure> {
        let before = self.states(relations, &self.snapshot);
        if let Some(&relation) = relations.iter().find(|oid| !before.contains_key(oid)) {
            return Err(Refusal::Unknown { relation }.into());
        }
        let mut latest = self.states(relations, &self.latest);

        // A relation that was dropped or renamed cannot be locked by the name that the snapshot
        // has for it. That it has changed is certain without a lock. Every other must be locked.
        let lost_name: BTreeSet<Oid> = before
            .values()
            .filter(|state| {
                latest.get(&state.relation).is_none_or(|latest| !latest.is_named_like(state))
            })
            .map(|state| state.relation)
            .collect();
        self.refuse_first(&before, not_locked.difference(&lost_name))?;
        let owners = self.owners_of_names(&before, &lost_name);

        let mut changes: Vec<_> = before
            .into_values()
            .filter_map(|before| {
                let latest = latest.remove(&before.relation);
                let owner = owners.get(&before.relation).copied();
                let reasons: Vec<_> = compare(&before, latest.as_ref(), owner).iter().collect();
                (!reasons.is_empty()).then_some(Change {
                    before,
                    latest,
                    reasons,
                    ancestors: Vec::new(),
                    rows_kept: false,
                })
            })
            .collect();
        let changed: Vec<_> = changes.iter().map(|change| change.before.relation).collect();
        let mut ancestors = self.ancestors(&changed);
        for change in &mut changes {
            if let Some(found) = ancestors.remove(&change.before.relation) {
                change.ancestors = found.into_iter().collect();
            }
        }
        self.note_kept_rows(&mut changes)?;
        Ok(changes)
    }

    fn note_kept_rows(&self, changes: &mut [Change]) -> Result<(), Failure> {
        if !changes.iter().any(|change| change.reasons.contains(&Reason::Replaced)) {
            return Ok(());
        }
        let kept = KeptRows::since(&self.snapshot, &self.latest)?;
        for change in changes {
            change.rows_kept =
                change.latest.as_ref().is_some_and(|latest| kept.lead(&change.before, latest));
        }
        Ok(())
    }

    fn refuse_first<'b>(
        &self,
        states: &BTreeMap<Oid, RelationState>,
        mut relations: impl Iterator<Item = &'b Oid>,
    ) -> Result<(), Refusal> {
        match relations.next().and_then(|relation| states.get(relation)) {
            Some(state) => Err(Refusal::NotLocked {
                schema: state.schema_name.clone(),
                relation: state.relation_name.clone(),
                kind: state.kind,
                others: relations.count(),
                encoding: self.spi.encoding(),
            }),
            None => Ok(()),
        }
    }

    fn states(&self, relations: &[Oid], under: &Snapshot) -> BTreeMap<Oid, RelationState> {
        let read = |row: &Row<'_>| {
            let state = RelationState {
                relation: row.oid(0),
                schema_name: row.text(1),
                relation_name: row.text(2),
                kind: row.text(3).chars().next().unwrap_or_default(),
                access_method: row.oid(4),
                tablespace: row.oid(5),
                filenode: row.oid(6),
                columns: row.text(7),
                parents: row.oids(8),
            };
            (state.relation, state)
        };
        self.spi
            .select(RELATION_STATE, &[Value::Oids(relations)], under, read)
            .into_iter()
            .collect()
    }

    /// Which relation now bears the name of each of the given ones; none where none does.
    fn owners_of_names(
        &self,
        states: &BTreeMap<Oid, RelationState>,
        relations: &BTreeSet<Oid>,
    ) -> BTreeMap<Oid, Oid> {
        if relations.is_empty() {
            return BTreeMap::new();
        }
        let wanted: BTreeMap<(&str, &str), Oid> = relations
            .iter()
            .filter_map(|relation| states.get(relation))
            .map(|state| ((&*state.schema_name, &*state.relation_name), state.relation))
            .collect();
        let (schemas, names): (Vec<&str>, Vec<&str>) = wanted.keys().copied().unzip();
        let parameters = [Value::Texts(&schemas), Value::Texts(&names)];
        let owners = self.spi.select(RELATION_NAMES, &parameters, &self.latest, |row| {
            (row.text(0), row.text(1), row.oid(2))
        });
        owners
            .into_iter()
            .filter_map(|(schema, name, owner)| {
                wanted.get(&(&*schema, &*name)).map(|&relation| (relation, owner))
            })
            .collect()
    }

    /// All ancestors of each relation, under the snapshot or the latest one: a parent that is
    /// new is one to be told of, as much as one that is lost.
    fn ancestors(&self, relations: &[Oid]) -> BTreeMap<Oid, BTreeSet<Oid>> {
        let mut ancestors: BTreeMap<Oid, BTreeSet<Oid>> = BTreeMap::new();
        if relations.is_empty() {
            return ancestors;
        }
        for under in [&self.snapshot, &self.latest] {
            let parameters = [Value::Oids(relations)];
            let read = |row: &Row<'_>| (row.oid(0), row.oids(1));
            for (relation, found) in self.spi.select(RELATION_ANCESTORS, &parameters, under, read) {
                ancestors.entry(relation).or_default().extend(found);
            }
        }
        ancestors
    }
}
