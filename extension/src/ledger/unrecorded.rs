//! What is not recorded: a setting forbids it, or it has failed and that is only a warning.
//!
//! It ends the run of recording (see [`witness`]), so that no bookmark from before can vouch for
//! what comes after. And until the transaction has ended that does it, no bookmark is taken: one
//! taken between its record and its commit would vouch for what it does not know.

use std::cell::Cell;

use stillpoint_check::Oid;

use super::table::Ledger;
use super::witness;
use crate::fence::catalog::{EXTENSIONS, database};
use crate::fence::{Failure, Hold, Lifetime, Marker, Row, Snapshot, Spi, Value};

thread_local! {
    /// The lock of a statement with transactions of its own that goes on unrecorded in this session.
    static GOES_ON: Cell<Option<Marker>> = const { Cell::new(None) };
}

/// Held together by all that goes unrecorded, and against that by whoever takes a bookmark. No
/// transaction has the number 0.
fn marker(ledger: Oid) -> Marker {
    Marker { table: ledger, number: 0, lifetime: Lifetime::Statement }
}

/// The same where there is no ledger: whoever begins one holds it against what goes on.
fn marker_without_ledger() -> Marker {
    marker(EXTENSIONS)
}

/// The transaction that is about to commit has done what is not recorded.
pub fn note_transaction() -> Result<(), Failure> {
    let Some(ledger) = Ledger::find() else { return Ok(()) };
    note(
        ledger,
        "recording was off, or has failed, in a transaction that replaced or dropped storage",
    )
}

/// The transaction that is about to commit has changed that ledger itself, or hidden it.
pub fn note_transaction_about(ledger: Oid) -> Result<(), Failure> {
    note(ledger, "its table was emptied, rewritten, or hidden")
}

fn note(ledger: Oid, why: &str) -> Result<(), Failure> {
    marker(ledger).wait_for_transaction(Hold::Together);
    witness::break_off(why)
}

/// A statement with transactions of its own is going to do what is not recorded.
pub fn begin_statement() -> Result<(), Failure> {
    let Some(ledger) = Ledger::find() else { return Ok(()) };
    begin(marker(ledger));
    witness::break_off("VACUUM, CLUSTER or REINDEX runs while recording is off, or has failed")
}

/// The same where there is no ledger.
pub fn begin_statement_without_ledger() {
    begin(marker_without_ledger());
}

fn begin(marker: Marker) {
    // If anything fails, the server itself lets go of it.
    marker.wait_for_session(Hold::Together);
    GOES_ON.set(Some(marker));
}

/// Whether one goes on.
pub fn goes_on() -> bool {
    GOES_ON.get().is_some()
}

/// It has ended well.
pub fn end_statement() {
    if let Some(marker) = GOES_ON.take() {
        marker.let_go(Hold::Together);
    }
}

/// It has failed.
pub fn forget_statement() {
    GOES_ON.set(None);
}

/// Waits for the statements with transactions of their own that go on where there is no ledger, and
/// lets no other begin until a ledger has begun.
pub fn wait_without_ledger() {
    marker_without_ledger().wait_for_transaction(Hold::Against);
}

/// Lets nothing go unrecorded until this transaction ends. Gives false if something just does.
pub fn forbid(ledger: Oid) -> bool {
    marker(ledger).take_for_transaction(Hold::Against)
}

/// The processes in which something goes unrecorded; 0 stands for a prepared transaction.
pub fn processes(ledger: Oid) -> Vec<i64> {
    const HOLDERS: &str = "\
        SELECT pg_catalog.int8(COALESCE(l.pid, 0)) FROM pg_catalog.pg_locks AS l \
         WHERE l.locktype = 'object' AND l.database = $1 AND l.classid = $2 AND l.objid = 0 \
           AND l.granted AND l.mode = 'ShareLock'";
    let parameters = [Value::Oid(Some(database())), Value::Oid(Some(ledger))];
    let read = |row: &Row<'_>| row.bigint(0);
    Spi::connect().select(HOLDERS, &parameters, &Snapshot::latest(), read)
}
