//! `status()`: whether the ledger records, and since when.

use super::installation::is_preloaded;
use super::table::Ledger;
use crate::fence::transaction::may_write;
use crate::fence::{Answer, Call, Failure, Row, RowSet, Snapshot, Spi, Value};
use crate::settings;

/// How large it is, and how long without a gap: since the server started, for nobody
/// knows whether it has always been started with the library; since there is a ledger; and, if the
/// server was a standby, since the last that it has replayed of another's doing. While a
/// transaction is prepared that is older, nothing can be said: what it has replaced may not be
/// recorded, and comes when it is committed.
const EXTENT: &str = "\
    SELECT pg_catalog.pg_total_relation_size('stillpoint.invalidation'::pg_catalog.regclass), \
           CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_prepared_xacts AS p \
                                  WHERE p.database = pg_catalog.current_database() \
                                    AND p.prepared < s.since) \
                THEN s.since END \
      FROM (SELECT GREATEST(pg_catalog.pg_postmaster_start_time(), \
                            pg_catalog.pg_last_xact_replay_timestamp(), \
                            pg_catalog.max(since)) AS since \
              FROM stillpoint.recording) AS s";

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
        (row.bigint(0), since)
    };
    for (bytes, since) in spi.select(EXTENT, &[], &Snapshot::latest(), read) {
        answer.put(&[
            Value::Bool(preloaded),
            Value::Bool(recording),
            Value::OptionalTimestamp(since.filter(|_| recording)),
            Value::BigInt(rows),
            Value::BigInt(bytes),
            Value::OptionalText(None),
        ]);
    }
    Ok(answer.finish())
}
