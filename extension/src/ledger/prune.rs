//! `prune()`: takes out of the ledger what is older than it is to be kept.

use super::table::Ledger;
use crate::fence::catalog::database;
use crate::fence::transaction::{now, refuse_read_only};
use crate::fence::{Answer, Call, Failure};
use crate::settings;

const MICROSECONDS_PER_MINUTE: i64 = 60_000_000;

/// The SQL function. Rows of work that goes on stay, however old. Those that the database has got
/// from its template go: they are about the template's files.
pub fn prune(_: &Call) -> Result<Answer, Failure> {
    refuse_read_only(c"stillpoint.prune()");
    let Some(ledger) = Ledger::open_for_writing()? else { return Ok(Answer::bigint(0)) };
    let oldest = now() - settings::retention_minutes() * MICROSECONDS_PER_MINUTE;
    let here = [0, database()];
    let pruned = ledger
        .prune(|record| record.recorded_at < oldest || !here.contains(&record.storage.database));
    Ok(Answer::bigint(i64::try_from(pruned).unwrap_or(i64::MAX)))
}
