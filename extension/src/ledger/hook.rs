//! The hook's part: announcing, before a statement runs.

use super::interval;
use super::record::Record;
use super::table::Ledger;
use super::targets::{Target, has_own_transactions, keeps_rows, targets};
use super::{recording, session, unrecorded};
use crate::fence::catalog::Catalog;
use crate::fence::statement::Work;
use crate::fence::transaction::{OwnTransactions, may_write, xid, xid_if_any};
use crate::fence::{Failure, Snapshot, Statement};
use crate::settings;

/// Whether statements are looked at now.
pub fn is_active() -> bool {
    may_write()
}

/// Before a statement: announces what it is going to replace. Gives whether its end is to be
/// recorded, too.
pub fn before(statement: &Statement<'_>) -> Result<bool, Failure> {
    session::begin_command(statement.command());
    if !Ledger::exists() {
        let begins = begins_without_ledger(statement);
        if begins || !Ledger::exists() {
            return Ok(begins);
        }
    }
    let work = known_work(statement);
    if matches!(work, Work::Unknown) {
        return Ok(false);
    }
    if !settings::is_recording_enabled() {
        return unrecorded(statement, &work);
    }
    if !has_own_transactions(&work) {
        let alone = !statement.is_in_block() && xid_if_any().is_none();
        recording(|| announce(&work, alone))?;
        return Ok(false);
    }
    match OwnTransactions::of(statement) {
        Some(own) if !interval::is_open() => interval::open(work, own),
        // The server will refuse, in its own words.
        _ => Ok(false),
    }
}

/// Marks a statement that has transactions of its own where there is no ledger, so that none begins
/// in the midst of it. Gives whether it did: a ledger may just have begun.
fn begins_without_ledger(statement: &Statement<'_>) -> bool {
    if !statement.is_maintenance()
        || unrecorded::goes_on()
        || OwnTransactions::of(statement).is_none()
        || !has_own_transactions(&known_work(statement))
    {
        return false;
    }
    unrecorded::begin_statement_without_ledger();
    if Ledger::exists() {
        unrecorded::end_statement();
        return false;
    }
    true
}

/// After a statement whose end is to be recorded, or that has gone unrecorded.
pub fn after() -> Result<(), Failure> {
    unrecorded::end_statement();
    if interval::is_open() { interval::close() } else { Ok(()) }
}

/// Before a statement that is not recorded. What it does within a transaction is noticed at the end
/// of that, but for mapped catalogs. If it has transactions of its own, it may change files in
/// place.
fn unrecorded(statement: &Statement<'_>, work: &Work) -> Result<bool, Failure> {
    if unrecorded::goes_on() {
        return Ok(false);
    }
    if !has_own_transactions(work) {
        if targets(work).iter().any(|target| target.relation.is_mapped()) {
            unrecorded::note_transaction()?;
        }
        return Ok(false);
    }
    if OwnTransactions::of(statement).is_none() || targets(work).is_empty() {
        return Ok(false);
    }
    unrecorded::begin_statement()?;
    Ok(true)
}

fn known_work(statement: &Statement<'_>) -> Work {
    let work = statement.work();
    #[cfg(feature = "mutants")]
    match work {
        Work::Truncate(_) if settings::mutant::ignores_truncate() => return Work::Unknown,
        Work::Vacuum(_) if settings::mutant::ignores_vacuum() => return Work::Unknown,
        _ => {}
    }
    work
}

/// Announces in the current transaction. `alone`: the transaction is the statement's own and has
/// done nothing before.
///
/// What belongs to an announced table gets its rows when it is replaced: they commit with the
/// announcement or not at all, and to write each of them twice is what makes the ledger felt.
fn announce(work: &Work, alone: bool) -> Result<(), Failure> {
    let mut targets = targets(work);
    if alone && keeps_rows(work) {
        session::keep_rows_of(targets.iter().map(|target| target.relation.oid).collect());
    }
    targets.retain(|target| match target.part_of {
        Some(table) if !target.relation.is_mapped() => {
            session::note_announced_with(target.relation.oid, table);
            false
        }
        _ => true,
    });
    if xid_if_any().is_some() {
        leave_out_own(&mut targets);
    }
    if targets.is_empty() {
        return Ok(());
    }
    let Some(ledger) = Ledger::open_for_writing()? else { return Ok(()) };
    leave_out_announced(&mut targets, &ledger);
    ledger.write(&Record::announcing(&targets, Some(xid())));
    session::note_announced();
    Ok(())
}

/// Leaves out the files that this transaction has made: no backup can know them.
fn leave_out_own(targets: &mut Vec<Target>) {
    let catalog = Catalog::open();
    let (before, _) = Snapshot::latest_without_and_with_own_changes();
    targets.retain(|target| {
        catalog
            .relation(target.relation.oid, &before)
            .is_some_and(|relation| relation.storage() == Some(target.storage))
    });
}

/// Leaves out the mapped relations that this transaction has announced already: of their file
/// the catalogs do not tell whether it is one of this transaction.
fn leave_out_announced(targets: &mut Vec<Target>, ledger: &Ledger) {
    let is_mapped = |target: &Target| target.relation.is_mapped();
    if !session::has_announced() || !targets.iter().any(is_mapped) {
        return;
    }
    let known = ledger.announced_by(xid());
    targets.retain(|target| {
        !is_mapped(target)
            || known.values().all(|(_, record)| record.relation != target.relation.oid)
    });
}
