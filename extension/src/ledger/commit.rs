//! The commit callback's part: recording what a transaction has really replaced or dropped.
//!
//! The server tells which relations the transaction has touched. Of each, the row of `pg_class`
//! is read as of one instant, without this transaction's changes and with them: where the file
//! differs, this transaction has replaced it. That needs no list of statements, and knows nothing
//! of what was rolled back.

use std::collections::{BTreeSet, HashMap, HashSet};

use stillpoint_check::Oid;

use super::interval;
use super::record::{Effect, Record};
use super::table::{Ledger, Rows};
use super::{recording, session, unrecorded};
use crate::fence::catalog::{Catalog, Relation, Storage, is_made_by_initdb, relation};
use crate::fence::transaction::{may_write, see_own_changes, xid, xid_if_any};
use crate::fence::{Failure, Snapshot, Touched, take_touched};
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
    if !may_write() {
        return Ok(());
    }
    #[cfg(feature = "mutants")]
    if settings::mutant::has_no_callback() {
        return Ok(());
    }
    see_own_changes();
    if let Some(ledger) = Ledger::hidden() {
        unrecorded::note_transaction_about(ledger)?;
    }
    let touched = take_touched(xid);
    if touched.relations.is_empty() && !touched.all && !session::has_announced() {
        return Ok(());
    }
    if !settings::is_recording_enabled() {
        return if changes_anything(&touched) { unrecorded::note_transaction() } else { Ok(()) };
    }
    if let Some(completed) = recording(|| complete(&touched))? {
        interval::forget(&completed);
    }
    Ok(())
}

/// Whether there would be anything to record, but for mapped catalogs: of those the hook knows.
fn changes_anything(touched: &Touched) -> bool {
    let changes = || if touched.all { all_changes() } else { changes(&touched.relations) };
    Ledger::exists() && !changes().is_empty()
}

/// Gives the files for which there was something to record.
fn complete(touched: &Touched) -> Result<Vec<Storage>, Failure> {
    let nothing = Ok(Vec::new());
    if !Ledger::exists() {
        return nothing;
    }
    let mut changes = if touched.all { all_changes() } else { changes(&touched.relations) };
    let may_be_mapped = touched.all || touched.relations.iter().any(|&oid| is_made_by_initdb(oid));
    if changes.is_empty() && !may_be_mapped {
        return nothing;
    }
    let Some(ledger) = Ledger::open_for_writing()? else { return nothing };
    let announced = if session::has_announced() { ledger.announced_by(xid()) } else { Rows::new() };
    changes.extend(mapped_changes(touched, &announced));
    if changes.iter().any(|change| loses_rows(&ledger, change)) {
        unrecorded::note_transaction_about(ledger.oid)?;
    }
    if !changes.is_empty() {
        write(&ledger, &changes, announced);
    }
    Ok(changes.into_iter().map(|change| change.storage).collect())
}

/// Whether it is the ledger itself whose file is replaced, and not by VACUUM FULL or CLUSTER.
fn loses_rows(ledger: &Ledger, change: &Change) -> bool {
    change.before.oid == ledger.oid
        && change.replaced_by.is_some()
        && !session::keeps_rows_of(ledger.oid)
}

/// Writes a row for each change: in the place of the one that announced it, if one did.
fn write(ledger: &Ledger, changes: &[Change], mut announced: Rows) {
    let (xid, command) = (xid(), session::command());
    let commands: HashMap<Oid, Option<String>> = announced
        .values()
        .map(|(_, announcement)| (announcement.relation, announcement.command.clone()))
        .collect();
    let record = |change: &Change| {
        let effect = if change.replaced_by.is_some() { Effect::Replaced } else { Effect::Dropped };
        let mut record = Record::new(xid, &change.before, change.storage, effect);
        record.replaced_by = change.replaced_by;
        record.rows_kept = effect == Effect::Replaced
            && change.before.is_heap()
            && session::keeps_rows_of(change.before.oid);
        let table = session::announced_with(change.before.oid);
        record.command.clone_from(table.and_then(|it| commands.get(&it)).unwrap_or(&command));
        // One statement can run within another, and both may have announced the file.
        let announcements =
            [interval::announcement(ledger, change.storage), announced.remove(&change.storage)];
        for (place, announcement) in announcements.into_iter().flatten() {
            ledger.delete(place, &announcement);
            // An index that was rebuilt beside its writers has got another by now.
            record.relation_name = announcement.relation_name;
            record.command = announcement.command;
        }
        record
    };
    let records: Vec<Record> = changes.iter().map(record).collect();
    ledger.write(&records);
}

/// What this transaction has done to the relations that were touched while it ran, by itself or
/// by others.
///
/// The backend's cache is not asked: it would keep for ever that a relation is not there, for each
/// that another session has dropped.
fn changes(touched: &BTreeSet<Oid>) -> Vec<Change> {
    let catalog = Catalog::open();
    let (without, with) = Snapshot::latest_without_and_with_own_changes();
    let touched: Vec<Oid> = touched.iter().copied().collect();
    let mut before = catalog.relations_of(&touched, &without);
    let known: BTreeSet<Oid> = before.keys().copied().collect();
    before.retain(|_, seen| seen.is_touched && is_recorded(&seen.relation));
    if before.is_empty() {
        return Vec::new();
    }
    let mut after = catalog.relations_of(&touched, &with);
    let new = after.iter().filter(|(oid, _)| !known.contains(oid));
    let new: HashSet<Storage> = new.filter_map(|(_, seen)| seen.relation.storage()).collect();
    let changes = before.into_iter().filter_map(|(oid, seen)| {
        change(seen.relation, after.remove(&oid).map(|seen| seen.relation))
    });
    given_up(changes.collect(), &new)
}

/// What this transaction has done to any relation: the server has not told which it has touched.
fn all_changes() -> Vec<Change> {
    let catalog = Catalog::open();
    let (without, with) = Snapshot::latest_without_and_with_own_changes();
    let after = catalog.relations(Some(&with), is_recorded);
    let alive = after.iter().filter_map(Relation::storage).collect();
    let mut after: HashMap<Oid, Relation> =
        after.into_iter().map(|relation| (relation.oid, relation)).collect();
    let before = catalog.relations(Some(&without), is_recorded).into_iter();
    let change = |before: Relation| {
        let after = after.remove(&before.oid);
        change(before, after)
    };
    given_up(before.filter_map(change).collect(), &alive)
}

/// Without those that have given their file to another relation: ALTER TABLE makes an index anew
/// and keeps its file where only the definition has changed (`TryReuseIndex()` in tablecmds.c).
fn given_up(mut changes: Vec<Change>, alive: &HashSet<Storage>) -> Vec<Change> {
    changes.retain(|change| change.replaced_by.is_some() || !alive.contains(&change.storage));
    changes
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
fn mapped_changes(touched: &Touched, announced: &Rows) -> Vec<Change> {
    let is_touched =
        |oid: Oid| is_made_by_initdb(oid) && (touched.all || touched.relations.contains(&oid));
    let mut candidates: BTreeSet<(Oid, Storage)> =
        announced.values().map(|(_, record)| (record.relation, record.storage)).collect();
    candidates.extend(interval::mapped());
    let change = |(oid, storage): (Oid, Storage)| {
        let before = relation(oid).filter(Relation::is_mapped)?;
        let now = before.storage()?;
        let replaced_by = Some(now.filenode);
        (now != storage).then_some(Change { before, storage, replaced_by })
    };
    candidates.into_iter().filter(|(oid, _)| is_touched(*oid)).filter_map(change).collect()
}
