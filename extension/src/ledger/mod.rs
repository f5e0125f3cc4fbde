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

mod commit;
mod error;
mod hook;
mod installation;
mod interval;
mod kept;
mod prune;
mod record;
mod session;
mod status;
mod table;
mod targets;

pub use installation::begin_ledger;
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
        let around =
            Around { is_active: hook::is_active, before: hook::before, after: hook::after };
        init::install(around, Listener { ending: commit::record, ended });
    }
}

fn ended(end: End) {
    if end == End::Aborted {
        forget_running();
    }
    interval::on_end(end);
    session::on_end();
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
            if session::note_warned() {
                warn(report);
            }
            Ok(None)
        }
    }
}
