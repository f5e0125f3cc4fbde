//! The commit callback's part: recording what a transaction has really replaced or dropped.
//!
//! The server tells which relations the transaction has touched. Of each, the row of `pg_class`
//! is read as of one instant, without this transaction's changes and with them: where the file
//! differs, this transaction has replaced it. That needs no list of statements, and knows nothing
//! of what was rolled back.

use std::collections::BTreeSet;

use stillpoint_check::Oid;

use super::interval::{self, Interval};
use super::record::{Effect, Record};
use super::table::{Ledger, Rows};
use super::{recording, session};
use crate::fence::catalog::{Cached, Catalog, Relation, Storage, cached, relation};
use crate::fence::transaction::{may_write, see_own_changes, xid, xid_if_any};
use crate::fence::{Failure, Place, Snapshot, Touched, take_touched};
use crate::settings;

/// A relation whose file this transaction has replaced, or that it has dropped.
struct Change {
    before: Relation,
    storage: Storage,
    replaced_by: Option<Oid>,
}

/// Records what the current transaction, which is about to commit, has done.
pub fn record() -> Result<(), Failure> {
    let Some(xid) = xid_if_any() else { return Ok(()) };
    if !settings::is_recording_enabled() || !may_write() {
        return Ok(());
    }
    #[cfg(feature = "mutants")]
    if settings::mutant::has_no_callback() {
        return Ok(());
    }
    see_own_changes();
    let touched = take_touched(xid);
    if touched.relations.is_empty() && !touched.all && !session::has_announced() {
        return Ok(());
    }
    recording(|| complete(&touched))?;
    Ok(())
}

fn complete(touched: &Touched) -> Result<(), Failure> {
    let candidates: Vec<(Oid, Option<Relation>)> = touched
        .relations
        .iter()
        .filter_map(|&oid| match cached(oid) {
            Cached::Own(after) => Some((oid, Some(after))),
            Cached::Missing => Some((oid, None)),
            Cached::Foreign | Cached::Temporary => None,
        })
        .collect();
    let may_be_mapped = touched.all || touched.relations.iter().any(|&oid| is_catalog(oid));
    if candidates.is_empty() && !may_be_mapped {
        return Ok(());
    }
    let catalog = Catalog::open();
    let (without, with) = Snapshot::latest_without_and_with_own_changes();
    let mut changes = if touched.all {
        all_changes(&catalog, &without, &with)
    } else {
        changes(candidates, &catalog, &without, &with)
    };
    if changes.is_empty() && !may_be_mapped {
        return Ok(());
    }
    let Some(ledger) = Ledger::open_for_writing()? else { return Ok(()) };
    let mut announced =
        if session::has_announced() { ledger.announced_by(xid(), &with) } else { Rows::new() };
    changes.extend(mapped_changes(touched, &announced)?);
    if changes.is_empty() {
        return Ok(());
    }
    interval::with_open(|interval| {
        write(&ledger, &changes, &mut announced, Some(interval));
        Ok(())
    })
    .map(|done| {
        if done.is_none() {
            write(&ledger, &changes, &mut announced, None);
        }
    })
}

/// Writes a row for each change: in the place of the one that announced it, if one did.
fn write(
    ledger: &Ledger,
    changes: &[Change],
    announced: &mut Rows,
    mut interval: Option<&mut Interval>,
) {
    let (xid, command) = (xid(), session::command());
    let records: Vec<Record> = changes
        .iter()
        .map(|change| {
            let effect =
                if change.replaced_by.is_some() { Effect::Replaced } else { Effect::Dropped };
            let mut record = Record::new(xid, &change.before, change.storage, effect);
            record.replaced_by = change.replaced_by;
            record.rows_kept = effect == Effect::Replaced
                && change.before.is_heap()
                && session::keeps_rows_of(change.before.oid);
            let by_interval =
                |interval: &mut &mut Interval| interval.take_row(ledger, change.storage);
            let first: Option<(Place, Record)> = announced
                .remove(&change.storage)
                .or_else(|| interval.as_mut().and_then(by_interval));
            record.command = match first {
                Some((place, announcement)) => {
                    ledger.delete(place);
                    // An index that was rebuilt beside its writers has got another by now.
                    record.relation_name = announcement.relation_name;
                    announcement.command
                }
                None => command.clone(),
            };
            record
        })
        .collect();
    ledger.write(&records);
}

/// What this transaction has done to relations that it has written or that seem to be gone.
fn changes(
    candidates: Vec<(Oid, Option<Relation>)>,
    catalog: &Catalog,
    without: &Snapshot,
    with: &Snapshot,
) -> Vec<Change> {
    candidates
        .into_iter()
        .filter_map(|(oid, after)| {
            let before = catalog.relation(oid, without).filter(is_recorded)?;
            // The cache and the snapshots are of two moments, and in between another session may
            // have made the relation, or dropped it. It is this transaction that has dropped it
            // only if the two snapshots differ.
            if after.is_none() && catalog.relation(oid, with).is_some() {
                return None;
            }
            change(before, after)
        })
        .collect()
}

/// What this transaction has done to any relation: the server has not told which it has touched.
fn all_changes(catalog: &Catalog, without: &Snapshot, with: &Snapshot) -> Vec<Change> {
    let mut after: std::collections::HashMap<Oid, Relation> = catalog
        .relations(Some(with), is_recorded)
        .into_iter()
        .map(|relation| (relation.oid, relation))
        .collect();
    catalog
        .relations(Some(without), is_recorded)
        .into_iter()
        .filter_map(|before| {
            let after = after.remove(&before.oid);
            change(before, after)
        })
        .collect()
}

/// Whether `pg_class` tells of a relation's file, and a backup has it.
fn is_recorded(relation: &Relation) -> bool {
    relation.has_storage() && !relation.is_temporary() && !relation.is_mapped()
}

/// What has become of a relation's file, if it is not where it was. A relation that is still
/// there may have none any more: a table could be made a view.
fn change(before: Relation, after: Option<Relation>) -> Option<Change> {
    let storage = before.storage()?;
    let after = after.and_then(|after| after.storage());
    let replaced_by = after.map(|after| after.filenode);
    (after != Some(storage)).then_some(Change { before, storage, replaced_by })
}

/// What this transaction has done to relations whose file only the relation mapper knows. It has
/// one answer, that of now; what it was before, the announcement tells. Nothing else than the
/// statements that are announced can change it.
fn mapped_changes(touched: &Touched, announced: &Rows) -> Result<Vec<Change>, Failure> {
    let is_touched =
        |oid: Oid| is_catalog(oid) && (touched.all || touched.relations.contains(&oid));
    let mut candidates: BTreeSet<(Oid, Storage)> =
        announced.values().map(|(_, record)| (record.relation, record.storage)).collect();
    interval::with_open(|interval| {
        candidates.extend(interval.mapped());
        Ok(())
    })?;
    Ok(candidates
        .into_iter()
        .filter(|(oid, _)| is_touched(*oid))
        .filter_map(|(oid, storage)| {
            let before = relation(oid).filter(Relation::is_mapped)?;
            let now = before.storage()?;
            (now != storage).then_some(Change { before, storage, replaced_by: Some(now.filenode) })
        })
        .collect())
}

/// Whether a relation is one of those that initdb makes: no other is mapped.
const fn is_catalog(relation: Oid) -> bool {
    const FIRST_NORMAL: Oid = 16384;
    relation < FIRST_NORMAL
}
