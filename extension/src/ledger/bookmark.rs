//! Bookmarks: moments that a reader of the ledger can come back to.
//!
//! What a transaction has recorded counts from its commit, and transactions commit in another
//! order than they record. So a bookmark is a snapshot, and what it has not seen is new. It is
//! written as a row of `stillpoint.bookmark` and committed durably: the numbers of transactions
//! that a crash hands out again are above the row's own, and after a restore of an older state the
//! row is not there.

use std::ffi::CStr;

use serde::{Deserialize, Serialize};
use stillpoint_check::Oid;

use super::error::Hindrance;
use super::gap::Gap;
use super::installation::is_preloaded;
use super::own_tables::{Bookmarks, Recordings};
use super::seen::Seen;
use super::table::Ledger;
use super::unrecorded;
use super::witness::{self, Run};
use crate::fence::catalog::database;
use crate::fence::control::{system_identifier, unique_name};
use crate::fence::transaction::{
    commit_durably, full_xid, in_recovery, now, refuse_in_block, refuse_read_only, replayed_to,
    wal_position, xid,
};
use crate::fence::{Answer, Call, Failure, Row, Snapshot, Spi, Value};

/// What users are given, as JSON. It says which row is meant, and of a row that is missing, where
/// it was.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Bookmark {
    version: u32,
    id: String,
    system_identifier: String,
    database: Oid,
    /// The ledger by its name.
    ledger: String,
    /// Where the WAL was.
    lsn: String,
}

impl Bookmark {
    const VERSION: u32 = 1;

    /// Reads what a user gives.
    fn parse(text: &str) -> Result<Self, Failure> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let malformed = |_| Failure::from(Gap::Malformed);
        let Versioned { version } = serde_json::from_str(text).map_err(malformed)?;
        if version > Self::VERSION {
            return Err(Gap::Newer { version }.into());
        }
        serde_json::from_str(text).map_err(malformed)
    }

    fn lsn(&self) -> Option<u64> {
        let (upper, lower) = self.lsn.split_once('/')?;
        let half = |digits| u32::from_str_radix(digits, 16).ok().map(u64::from);
        Some(half(upper)? << 32 | half(lower)?)
    }

    /// What is wrong with it, if its row is not to be found.
    fn unknown(&self) -> Gap {
        let reached = if in_recovery() { replayed_to() } else { wal_position() };
        match self.lsn() {
            Some(lsn) if lsn > reached && in_recovery() => Gap::NotReplayed,
            Some(lsn) if lsn > reached => Gap::FromTheFuture,
            _ => Gap::Forgotten,
        }
    }
}

/// A row of `stillpoint.bookmark`, in the order of its columns.
#[derive(Clone, Debug)]
pub struct Token {
    /// Its name.
    pub id: String,
    /// What users have been given.
    pub text: String,
    /// The database for which it was taken, and not only copied to.
    pub database: Oid,
    /// When, in microseconds since 2000-01-01.
    pub taken_at: i64,
    /// The transaction that has written it.
    pub xid: u64,
    seen: Seen,
    /// The run of the server's recording; none if something may go unrecorded that the run does
    /// not tell of.
    pub run: Option<String>,
    /// The consumer whose backup has begun with it.
    pub consumer: Option<String>,
}

impl Token {
    /// A row, to see whether a table has the columns for it.
    pub const SHAPE: [Value<'static>; 8] = [
        Value::Text(""),
        Value::Text(""),
        Value::Oid(None),
        Value::Timestamp(0),
        Value::Xid(None),
        Value::Text(""),
        Value::OptionalText(None),
        Value::OptionalText(None),
    ];

    /// Reads a row.
    pub fn read(row: &Row<'_>) -> Self {
        let optional = |column| (!row.is_null(column)).then(|| row.text(column));
        Self {
            id: row.text(0),
            text: row.text(1),
            database: row.oid(2),
            taken_at: row.timestamp(3),
            xid: row.xid(4).unwrap_or_default(),
            // What cannot be read has seen nothing.
            seen: row.text(5).parse().unwrap_or_default(),
            run: optional(6),
            consumer: optional(7),
        }
    }

    /// Gives the row's values to `put`.
    pub fn put(&self, put: impl FnOnce(&[Value<'_>])) {
        put(&[
            Value::Text(&self.id),
            Value::Text(&self.text),
            Value::Oid(Some(self.database)),
            Value::Timestamp(self.taken_at),
            Value::Xid(Some(self.xid)),
            Value::Text(&self.seen.to_string()),
            Value::OptionalText(self.run.as_deref()),
            Value::OptionalText(self.consumer.as_deref()),
        ]);
    }

    /// Whether it has seen that transaction's work. Its own number is the limit: one above it may
    /// be handed out twice if the server crashes.
    pub fn has_seen(&self, xid: u64) -> bool {
        xid < self.xid && self.seen.contains(xid)
    }

    /// All transactions below it are seen.
    pub fn horizon(&self) -> u64 {
        self.seen.horizon().min(self.xid)
    }
}

/// The SQL function `bookmark()`.
pub fn bookmark(_: &Call) -> Result<Answer, Failure> {
    refuse_where_none_is_taken(c"stillpoint.bookmark()")?;
    let bookmarks = Bookmarks::in_line()?;
    take(&bookmarks, None).map(|token| Answer::text(&token.text))
}

/// Refuses where no bookmark can be taken, and lets the commit be durable. `command` is the SQL
/// function that is to take it.
pub fn refuse_where_none_is_taken(command: &CStr) -> Result<(), Failure> {
    if in_recovery() {
        return Err(Gap::OnStandby { command: command.to_string_lossy().into_owned() }.into());
    }
    refuse_unless_alone(command);
    commit_durably();
    if is_preloaded() { Ok(()) } else { Err(Gap::NotPreloaded.into()) }
}

/// Refuses a SQL function that writes where it cannot, and where its transaction is not its own: it
/// keeps others from their bookmarks until that ends.
pub fn refuse_unless_alone(command: &CStr) {
    refuse_read_only(command);
    refuse_in_block(command);
}

/// Takes a bookmark: it is one when this transaction has committed.
pub fn take(bookmarks: &Bookmarks, consumer: Option<&str>) -> Result<Token, Failure> {
    // Nothing would be recorded without it.
    let Some(ledger) = Ledger::find() else { return Err(Hindrance::NO_LEDGER.into()) };
    if !unrecorded::forbid(ledger) {
        return Err(Gap::Unrecorded { by: unrecorded::processes(ledger) }.into());
    }
    let run = witness::rely()?;
    // Before the snapshot: what is committed in between is seen by that.
    let is_vouched_for = !has_prepared_before(&run);
    let recordings = Recordings::open_for_writing()?;
    let recording = recordings.present_or_new(&run.name);
    let xid = xid();
    let lsn = wal_position();
    let bookmark = Bookmark {
        version: Bookmark::VERSION,
        id: unique_name(),
        system_identifier: system_identifier().to_string(),
        database: database(),
        ledger: recording.ledger,
        lsn: format!("{:X}/{:X}", lsn >> 32, lsn as u32),
    };
    let text = serde_json::to_string(&bookmark).map_err(|_| Failure::from(Gap::Malformed))?;
    let token = Token {
        id: bookmark.id,
        text,
        database: database(),
        taken_at: now(),
        xid,
        seen: Seen::from(&Snapshot::latest()),
        run: is_vouched_for.then_some(run.name),
        consumer: consumer.map(str::to_owned),
    };
    bookmarks.put(&token);
    Ok(token)
}

/// Whether a transaction is prepared in this database that may be older than the run: what it has
/// replaced may not be recorded, and comes when it is committed. Its number tells, not the clock,
/// which may have been set back.
pub fn has_prepared_before(run: &Run) -> bool {
    const PREPARED: &str = "\
        SELECT transaction::pg_catalog.text FROM pg_catalog.pg_prepared_xacts \
         WHERE database = pg_catalog.current_database()";
    let xid = |row: &Row<'_>| row.text(0).parse().ok().map(full_xid);
    let prepared = Spi::connect().select(PREPARED, &[], &Snapshot::latest(), xid);
    prepared.into_iter().any(|xid| !xid.is_some_and(|xid| run.is_of(xid)))
}

/// The row of a bookmark that a user gives.
pub fn find(bookmarks: &Bookmarks, text: Option<String>) -> Result<Token, Failure> {
    let bookmark = of_this_ledger(text)?;
    bookmarks.find(&bookmark.id).ok_or_else(|| bookmark.unknown().into())
}

/// The name of a bookmark that a user gives, whether it is valid or not.
pub fn id(text: Option<String>) -> Result<String, Failure> {
    of_this_ledger(text).map(|bookmark| bookmark.id)
}

fn of_this_ledger(text: Option<String>) -> Result<Bookmark, Failure> {
    let bookmark = Bookmark::parse(&text.ok_or(Gap::Malformed)?)?;
    if bookmark.system_identifier != system_identifier().to_string() {
        return Err(Gap::OtherCluster.into());
    }
    if bookmark.database != database() {
        return Err(Gap::OtherDatabase { database: bookmark.database }.into());
    }
    if Recordings::present()?.is_none_or(|recording| recording.ledger != bookmark.ledger) {
        return Err(Gap::OtherLedger.into());
    }
    Ok(bookmark)
}

/// What may be missing between two bookmarks, or from one until now.
pub fn gap(base: &Token, upto: Option<&Token>) -> Result<Option<Gap>, Failure> {
    let run = match upto {
        Some(upto) => upto.run.clone(),
        // A standby does not know how the primary runs now, only how it did when it took its last
        // bookmark.
        None if in_recovery() => Recordings::present()?.and_then(|recording| recording.run),
        None if !is_preloaded() => return Ok(Some(Gap::NotPreloaded)),
        None => Some(witness::run()?.name),
    };
    Ok(match &base.run {
        None => Some(Gap::UnrecordedPrepared),
        known if *known == run => None,
        Some(_) => Some(Gap::Interrupted),
    })
}
