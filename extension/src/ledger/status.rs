//! `status()`: whether the ledger records, and since when.

use super::bookmark::has_prepared_before;
use super::installation::is_preloaded;
use super::own_tables::Recordings;
use super::table::Ledger;
use super::witness;
use crate::fence::catalog::database;
use crate::fence::transaction::{in_recovery, may_write};
use crate::fence::{Answer, Call, Failure, Row, RowSet, Snapshot, Spi, Value};
use crate::settings;

/// How large it is; how long without a gap, that is since nothing went unrecorded, since there is a
/// ledger, and, if the server was a standby, since the last that it has replayed of another's doing;
/// and the oldest bookmark.
const EXTENT: &str = "\
    SELECT pg_catalog.pg_total_relation_size('stillpoint.invalidation'::pg_catalog.regclass), \
           GREATEST($1, pg_catalog.pg_last_xact_replay_timestamp(), \
                    (SELECT pg_catalog.max(r.since) \
                       FROM stillpoint.recording AS r WHERE r.database = $2)), \
           (SELECT b.bookmark FROM stillpoint.bookmark AS b \
             WHERE b.database = $2 AND b.run = $3 ORDER BY b.xid LIMIT 1)";

/// The SQL function.
pub fn status(call: &Call) -> Result<Answer, Failure> {
    let spi = Spi::connect();
    let mut answer = RowSet::begin(call, spi.encoding())?;
    let ledger = Ledger::open_for_reading()?;
    let preloaded = is_preloaded();
    let recording =
        preloaded && settings::is_recording_enabled() && may_write() && ledger.is_some();
    let rows = ledger.map_or(0, |ledger| i64::try_from(ledger.count()).unwrap_or(i64::MAX));
    let read = |row: &Row<'_>| {
        let since = (!row.is_null(1)).then(|| row.timestamp(1));
        let oldest = (!row.is_null(2)).then(|| row.text(2));
        (row.bigint(0), since, oldest)
    };
    // With the SQL of an older version there would be no such tables.
    let recorded = Recordings::present()?;
    // Without the witness nobody vouches for anything, nor while a transaction is prepared that is
    // older than what it tells of: what that has replaced may not be recorded.
    let run = witness::run().ok().filter(|_| recording && recorded.is_some());
    // A standby knows the primary's run by the last bookmark.
    let name = match &run {
        Some(run) => Some(run.name.clone()),
        None => recorded.and_then(|recorded| recorded.run).filter(|_| in_recovery()),
    };
    let run = run.filter(|run| !has_prepared_before(run)).map(|run| run.since);
    let parameters = [
        Value::OptionalTimestamp(run),
        Value::Oid(Some(database())),
        Value::OptionalText(name.as_deref()),
    ];
    for (bytes, since, oldest) in spi.select(EXTENT, &parameters, &Snapshot::latest(), read) {
        answer.put(&[
            Value::Bool(preloaded),
            Value::Bool(recording),
            Value::OptionalTimestamp(since.filter(|_| run.is_some())),
            Value::BigInt(rows),
            Value::BigInt(bytes),
            Value::OptionalText(oldest.as_deref()),
        ]);
    }
    Ok(answer.finish())
}
