//! The ledger: which bytes an earlier file-level backup may no longer trust.
//!
//! A row of `stillpoint.invalidation` names a file by its relfilenode and says that what a backup
//! knows of it is void. Two writers fill the table:
//!
//! * [`hook`] announces, before a statement runs, what it is going to replace or work on;
//! * [`commit`] writes, when a transaction is about to commit, what it really has replaced or
//!   dropped, by whatever means: it compares the catalogs and knows no list of statements.
//!
//! A statement within a transaction is announced in that transaction: statement and record
//! happen together or not at all. A statement that has transactions of its own, such as VACUUM,
//! changes files before any commit that could carry a record. Its announcement is committed
//! before it begins, and it is an [`interval`]: open until a later transaction records its end.
//!
//! Readers come with a [`mod@bookmark`], a moment that they know, and are told what is void since then
//! ([`invalidated`]), or that the ledger has a [`gap`]: the [`witness`] knows of servers that ran
//! without it, and [`unrecorded`] of what went by. A [`consumer`] is a backup tool whose bookmarks
//! the ledger keeps.

mod bookmark;
mod commit;
mod consumer;
mod error;
mod gap;
mod hook;
mod installation;
mod interval;
mod invalidated;
mod kept;
mod own_tables;
mod prune;
mod record;
mod seen;
mod session;
mod status;
mod table;
mod targets;
mod unrecorded;
mod witness;

pub use bookmark::bookmark;
pub use consumer::{begin_backup, drop_consumer, end_backup, register_consumer};
pub use installation::begin_ledger;
pub use invalidated::{invalidated_between, invalidated_since};
pub use kept::KeptRows;
pub use prune::prune;
pub use status::status;

use crate::fence::transaction::{End, Listener, attempt};
use crate::fence::{Around, Failure, forget_running, forget_touched, init, warn};
use crate::settings;

/// Begins to record, if the server loads the library at its start. A library that is loaded by
/// some sessions only could not know of the others' changes, so there it records nothing.
pub fn install() {
    if init::is_preloading() {
        installation::note_preloaded();
        witness::begin();
        let around =
            Around { is_active: hook::is_active, before: hook::before, after: hook::after };
        init::install(around, Listener { ending: commit::record, ended });
    }
}

fn ended(end: End) {
    if end == End::Aborted {
        forget_running();
        unrecorded::forget_statement();
    }
    consumer::on_end(end);
    interval::on_end(end);
    session::on_end();
    table::Ledger::on_end();
    forget_touched();
}

/// Does the work of recording, whose failure is that of the user's statement, or only a warning,
/// as `stillpoint.on_record_failure` says. `None` if it failed and the statement goes on.
fn recording<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<Option<T>, Failure> {
    if !settings::failures_are_warnings() {
        return work().map(Some);
    }
    match attempt(work) {
        Ok(done) => Ok(Some(done)),
        Err(cause) => {
            let report = error::unrecorded(cause)?;
            unrecorded::note_transaction()?;
            if session::note_warned() {
                warn(report);
            }
            Ok(None)
        }
    }
}
