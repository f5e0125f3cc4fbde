//! What is not recorded: a setting forbids it, or it has failed and that is only a warning.
//!
//! It ends the run of recording (see [`witness`]), so that no bookmark from before can vouch for
//! what comes after. And until the transaction has ended that does it, no bookmark is taken: one
//! taken between its record and its commit would vouch for what it does not know.

use std::cell::Cell;

use super::table::Ledger;
use super::witness;
use crate::fence::catalog::database;
use crate::fence::{Failure, Hold, Lifetime, Marker, Row, Snapshot, Spi, Value};

thread_local! {
    /// Whether a statement with transactions of its own goes on unrecorded in this session.
    static GOES_ON: Cell<bool> = const { Cell::new(false) };
}

/// Held together by all that goes unrecorded, and against that by whoever takes a bookmark. No
/// transaction has the number 0.
fn marker(ledger: u32) -> Marker {
    Marker { table: ledger, number: 0, lifetime: Lifetime::Statement }
}

/// The transaction that is about to commit has done what is not recorded.
pub fn note_transaction() -> Result<(), Failure> {
    let Some(ledger) = Ledger::find() else { return Ok(()) };
    marker(ledger).wait_for_transaction(Hold::Together);
    witness::break_off()
}

/// A statement with transactions of its own is going to do what is not recorded.
pub fn begin_statement() -> Result<(), Failure> {
    let Some(ledger) = Ledger::find() else { return Ok(()) };
    // If anything fails, the server itself lets go of it.
    marker(ledger).wait_for_session(Hold::Together);
    GOES_ON.set(true);
    witness::break_off()
}

/// Whether one goes on.
pub fn goes_on() -> bool {
    GOES_ON.get()
}

/// It has ended well.
pub fn end_statement() {
    if GOES_ON.replace(false)
        && let Some(ledger) = Ledger::find()
    {
        marker(ledger).let_go(Hold::Together);
    }
}

/// It has failed.
pub fn forget_statement() {
    GOES_ON.set(false);
}

/// Lets nothing go unrecorded until this transaction ends. Gives false if something just does.
pub fn forbid(ledger: u32) -> bool {
    marker(ledger).take_for_transaction(Hold::Against)
}

/// The processes in which something goes unrecorded; 0 stands for a prepared transaction.
pub fn processes(ledger: u32) -> Vec<i64> {
    const HOLDERS: &str = "\
        SELECT pg_catalog.int8(COALESCE(l.pid, 0)) FROM pg_catalog.pg_locks AS l \
         WHERE l.locktype = 'object' AND l.database = $1 AND l.classid = $2 AND l.objid = 0 \
           AND l.granted AND l.mode = 'ShareLock'";
    let parameters = [Value::Oid(Some(database())), Value::Oid(Some(ledger))];
    let read = |row: &Row<'_>| row.bigint(0);
    Spi::connect().select(HOLDERS, &parameters, &Snapshot::latest(), read)
}
