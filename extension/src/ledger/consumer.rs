//! Consumers: backup tools, each with the bookmark of its last backup.
//!
//! A backup that is running holds a lock for its session, so that there is one at a time, and the
//! server itself ends it with its session. What it has begun is noted in the consumer's row:
//! whoever has that bookmark may end the backup, from another session too, as long as no other
//! backup was begun for that consumer.

use std::cell::RefCell;
use std::collections::BTreeMap;

use stillpoint_check::Oid;

use super::bookmark::{self, Token, refuse_unless_alone, refuse_where_none_is_taken};
use super::gap::Gap;
use super::own_tables::{Bookmarks, Consumers};
use super::prune;
use crate::fence::catalog::database;
use crate::fence::transaction::{End, commit_durably, now};
use crate::fence::{
    Answer, Call, Encoding, ErrorReport, Failure, Hold, Lifetime, Marker, Row, RowSet, Snapshot,
    Spi, SqlState, Value,
};

/// A row of `stillpoint.consumer`, in the order of its columns.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// It marks the lock of a running backup.
    pub number: Oid,
    /// Its name.
    pub name: String,
    registered_at: i64,
    /// The bookmark of the last backup, by its id.
    pub base: Option<String>,
    backed_up_at: Option<i64>,
    /// The bookmark of the backup that was begun last and has not ended, by its id.
    pub begun: Option<String>,
    /// Whether the ledger has forgotten what has changed since its last backup.
    pub lost: bool,
}

impl Consumer {
    /// A row, to see whether a table has the columns for it.
    pub const SHAPE: [Value<'static>; 7] = [
        Value::Oid(None),
        Value::Text(""),
        Value::Timestamp(0),
        Value::OptionalText(None),
        Value::OptionalTimestamp(None),
        Value::OptionalText(None),
        Value::Bool(false),
    ];

    /// Reads a row.
    pub fn read(row: &Row<'_>) -> Self {
        let text = |column| (!row.is_null(column)).then(|| row.text(column));
        Self {
            number: row.oid(0),
            name: row.text(1),
            registered_at: row.timestamp(2),
            base: text(3),
            backed_up_at: (!row.is_null(4)).then(|| row.timestamp(4)),
            begun: text(5),
            lost: row.bool(6),
        }
    }

    /// The row's values.
    pub fn values(&self) -> [Value<'_>; 7] {
        [
            Value::Oid(Some(self.number)),
            Value::Text(&self.name),
            Value::Timestamp(self.registered_at),
            Value::OptionalText(self.base.as_deref()),
            Value::OptionalTimestamp(self.backed_up_at),
            Value::OptionalText(self.begun.as_deref()),
            Value::Bool(self.lost),
        ]
    }
}

/// How far a backup of this session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The transaction that begins it has not committed.
    Beginning,
    Running,
    /// The transaction that ends it has not committed.
    Ending,
    /// It is one transaction that begins and ends it.
    Passing,
}

thread_local! {
    /// The locks that this session holds for backups.
    static RUNNING: RefCell<BTreeMap<(Oid, u32), Phase>> = const { RefCell::new(BTreeMap::new()) };
}

fn marker(table: Oid, number: u32) -> Marker {
    Marker { table, number, lifetime: Lifetime::Session }
}

fn phase_of(marker: Marker) -> Option<Phase> {
    // The session may have let go of all its advisory locks, and of this one with them.
    RUNNING
        .with(|running| running.borrow().get(&(marker.table, marker.number)).copied())
        .filter(|_| marker.is_held())
}

fn set_phase(marker: Marker, phase: Phase) {
    RUNNING.with(|running| running.borrow_mut().insert((marker.table, marker.number), phase));
}

/// A transaction has ended, and with it what it was to begin or to end.
pub fn on_end(end: End) {
    let is_committed = end != End::Aborted;
    let over: Vec<Marker> = RUNNING.with(|running| {
        let mut running = running.borrow_mut();
        let mut over = Vec::new();
        running.retain(|(table, number), phase| {
            let is_over = match phase {
                Phase::Beginning => !is_committed,
                Phase::Running => false,
                Phase::Ending => is_committed,
                Phase::Passing => true,
            };
            *phase = Phase::Running;
            if is_over {
                over.push(marker(*table, *number));
            }
            !is_over
        });
        over
    });
    for marker in over {
        if marker.is_held() {
            marker.let_go(Hold::Alone);
        }
    }
}

/// Why a consumer's backup cannot be begun or ended.
#[derive(Debug)]
enum Refusal {
    NoName,
    Unknown { name: String, encoding: Encoding },
    Known { name: String, encoding: Encoding },
    RunningHere { name: String, encoding: Encoding },
    RunningElsewhere { name: String, by: Vec<i64>, encoding: Encoding },
    NotBegun { name: String, encoding: Encoding },
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let report = |state, message: String| ErrorReport::new(state, message, "consumer");
        let quoted = |name: &str, encoding: Encoding| encoding.for_message(name);
        Self::new(match refusal {
            Refusal::NoName => report(
                SqlState::ERRCODE_INVALID_PARAMETER_VALUE,
                "a consumer must have a name".to_owned(),
            ),
            Refusal::Unknown { name, encoding } => report(
                SqlState::ERRCODE_UNDEFINED_OBJECT,
                format!("consumer \"{}\" does not exist", quoted(&name, encoding)),
            )
            .set_hint(
                "stillpoint.consumers lists those that do; stillpoint.register_consumer() makes \
                 one known.",
            ),
            Refusal::Known { name, encoding } => report(
                SqlState::ERRCODE_DUPLICATE_OBJECT,
                format!("consumer \"{}\" already exists", quoted(&name, encoding)),
            ),
            Refusal::RunningHere { name, encoding } => report(
                SqlState::ERRCODE_OBJECT_IN_USE,
                format!("a backup of consumer \"{}\" is already running", quoted(&name, encoding)),
            )
            .set_detail("This session has begun it.")
            .set_hint("End it by stillpoint.end_backup(), or give it up by ending the session."),
            Refusal::RunningElsewhere { name, by, encoding } => {
                let by = by.first().map_or_else(
                    || "It has just ended: try again.".to_owned(),
                    |pid| format!("It runs in the session of process {pid}."),
                );
                report(
                    SqlState::ERRCODE_OBJECT_IN_USE,
                    format!(
                        "a backup of consumer \"{}\" is already running",
                        quoted(&name, encoding)
                    ),
                )
                .set_detail(by)
            }
            Refusal::NotBegun { name, encoding } => report(
                SqlState::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!(
                    "no backup of consumer \"{}\" has begun with this bookmark",
                    quoted(&name, encoding)
                ),
            )
            .set_detail("None was begun, it has ended already, or another was begun after it.")
            .set_hint("Begin a backup by stillpoint.begin_backup()."),
        })
    }
}

fn name_of(call: &Call) -> Result<String, Failure> {
    call.text(0).filter(|name| !name.is_empty()).ok_or_else(|| Refusal::NoName.into())
}

/// The SQL function `register_consumer()`.
pub fn register_consumer(call: &Call) -> Result<Answer, Failure> {
    refuse_unless_alone(c"stillpoint.register_consumer()");
    let name = name_of(call)?;
    let bookmarks = Bookmarks::in_line()?;
    let consumers = Consumers::open_for_writing(&bookmarks)?;
    if consumers.find(&name).is_some() {
        return Err(Refusal::Known { name, encoding: Encoding::of_database() }.into());
    }
    let last = consumers.all().into_iter().map(|(_, consumer)| consumer.number).max();
    consumers.put(&Consumer {
        number: last.unwrap_or(0) + 1,
        name,
        registered_at: now(),
        base: None,
        backed_up_at: None,
        begun: None,
        lost: false,
    });
    Ok(Answer::nothing())
}

/// The SQL function `drop_consumer()`.
pub fn drop_consumer(call: &Call) -> Result<Answer, Failure> {
    refuse_unless_alone(c"stillpoint.drop_consumer()");
    let name = name_of(call)?;
    let bookmarks = Bookmarks::in_line()?;
    let consumers = Consumers::open_for_writing(&bookmarks)?;
    let encoding = Encoding::of_database();
    let Some((place, consumer)) = consumers.find(&name) else {
        return Err(Refusal::Unknown { name, encoding }.into());
    };
    let marker = marker(consumers.oid(), consumer.number);
    if phase_of(marker).is_some() {
        return Err(Refusal::RunningHere { name, encoding }.into());
    }
    if !marker.take_for_transaction(Hold::Alone) {
        let by = holders(marker);
        return Err(Refusal::RunningElsewhere { name, by, encoding }.into());
    }
    consumers.delete(place, &consumer);
    for (place, token) in bookmarks.all() {
        if token.consumer.as_ref() == Some(&consumer.name) {
            bookmarks.delete(place, &token);
        }
    }
    Ok(Answer::nothing())
}

/// The SQL function `begin_backup()`.
pub fn begin_backup(call: &Call) -> Result<Answer, Failure> {
    refuse_where_none_is_taken(c"stillpoint.begin_backup()")?;
    let mut answer = RowSet::begin(call, Encoding::of_database())?;
    let name = name_of(call)?;
    let bookmarks = Bookmarks::in_line()?;
    let consumers = Consumers::open_for_writing(&bookmarks)?;
    let encoding = Encoding::of_database();
    let Some((place, mut consumer)) = consumers.find(&name) else {
        return Err(Refusal::Unknown { name, encoding }.into());
    };
    let marker = marker(consumers.oid(), consumer.number);
    if phase_of(marker).is_some() {
        return Err(Refusal::RunningHere { name, encoding }.into());
    }
    if !marker.take_for_session() {
        let by = holders(marker);
        return Err(Refusal::RunningElsewhere { name, by, encoding }.into());
    }
    set_phase(marker, Phase::Beginning);

    let known = bookmarks.all();
    let token = bookmark::take(&bookmarks, Some(&consumer.name))?;
    let base = known
        .iter()
        .map(|(_, token)| token)
        .find(|token| Some(&token.id) == consumer.base.as_ref() && token.database == database());
    let reason = match base {
        None if consumer.lost => Some(LOST.to_owned()),
        None if consumer.base.is_some() => Some(Gap::Forgotten.reason()),
        None => Some(FIRST.to_owned()),
        Some(base) => bookmark::gap(base, Some(&token))?.map(|gap| gap.reason()),
    };
    for (place, given_up) in &known {
        if Some(&given_up.id) == consumer.begun.as_ref() {
            bookmarks.delete(*place, given_up);
        }
    }
    consumer.begun = Some(token.id.clone());
    consumers.replace(place, &consumer);
    answer.put(&[
        Value::OptionalText(base.map(|base| base.text.as_str())),
        Value::Text(&token.text),
        Value::Bool(reason.is_none()),
        Value::OptionalText(
            reason.map(|reason| format!("{reason}; take a full backup")).as_deref(),
        ),
    ]);
    Ok(answer.finish())
}

const FIRST: &str = "this is the first backup of this consumer";
const LOST: &str = "the last backup is older than stillpoint.ledger_retention";

/// The SQL function `end_backup()`.
pub fn end_backup(call: &Call) -> Result<Answer, Failure> {
    refuse_unless_alone(c"stillpoint.end_backup()");
    commit_durably();
    let name = name_of(call)?;
    let bookmarks = Bookmarks::in_line()?;
    let consumers = Consumers::open_for_writing(&bookmarks)?;
    let encoding = Encoding::of_database();
    let Some((place, mut consumer)) = consumers.find(&name) else {
        return Err(Refusal::Unknown { name, encoding }.into());
    };
    let begun = bookmark::id(call.text(1))?;
    if Some(&begun) != consumer.begun.as_ref() {
        return Err(Refusal::NotBegun { name, encoding }.into());
    }
    let marker = marker(consumers.oid(), consumer.number);
    if let Some(phase) = phase_of(marker) {
        let is_new = matches!(phase, Phase::Beginning | Phase::Passing);
        set_phase(marker, if is_new { Phase::Passing } else { Phase::Ending });
    } else if !marker.take_for_transaction(Hold::Alone) {
        let by = holders(marker);
        return Err(Refusal::RunningElsewhere { name, by, encoding }.into());
    }
    let last = consumer.base.replace(begun);
    consumer.begun = None;
    consumer.backed_up_at = Some(now());
    consumer.lost = false;
    consumers.replace(place, &consumer);
    for (place, token) in bookmarks.all() {
        if Some(&token.id) == last.as_ref() {
            bookmarks.delete(place, &token);
        }
    }
    prune::what_all_have_passed(&bookmarks, &consumers)?;
    Ok(Answer::nothing())
}

/// The processes whose sessions hold that lock.
fn holders(marker: Marker) -> Vec<i64> {
    const HOLDERS: &str = "\
        SELECT pg_catalog.int8(l.pid) FROM pg_catalog.pg_locks AS l \
         WHERE l.locktype = 'object' AND l.database = $1 AND l.classid = $2 AND l.objid = $3 \
           AND l.granted AND l.pid IS NOT NULL";
    let parameters = [database(), marker.table, marker.number].map(|oid| Value::Oid(Some(oid)));
    let read = |row: &Row<'_>| row.bigint(0);
    Spi::connect().select(HOLDERS, &parameters, &Snapshot::latest(), read)
}

/// The bookmarks that a consumer needs: that of its last backup, and that of the one it has begun.
pub fn needs(consumer: &Consumer, token: &Token) -> bool {
    token.consumer.as_ref() == Some(&consumer.name)
        && [&consumer.base, &consumer.begun].contains(&&Some(token.id.clone()))
}
