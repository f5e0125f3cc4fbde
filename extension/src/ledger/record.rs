//! A row of the ledger.

use stillpoint_check::Oid;

use super::session;
use super::targets::Target;
use crate::fence::catalog::{Relation, Storage};
use crate::fence::transaction::{now, wal_position, xid};
use crate::fence::{Row, Value};

/// What has become, or is to become, of the bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Something is going to happen to them, or was and nobody knows more.
    Announced,
    /// The relation has another file.
    Replaced,
    /// The file is the same, its content has moved.
    Compacted,
    /// Pages were cleaned and the end may be cut off, all of it under WAL.
    Pages,
    /// The relation is gone.
    Dropped,
}

impl Effect {
    const ALL: [Self; 5] =
        [Self::Announced, Self::Replaced, Self::Compacted, Self::Pages, Self::Dropped];

    /// As it is written in the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Announced => "announced",
            Self::Replaced => "replaced",
            Self::Compacted => "compacted",
            Self::Pages => "pages",
            Self::Dropped => "dropped",
        }
    }

    /// What is not known, a later version's, is as uncertain as what was announced.
    fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|effect| effect.as_str() == text).unwrap_or(Self::Announced)
    }
}

/// A row of the ledger, in the order of its columns.
#[derive(Clone, Debug)]
pub struct Record {
    /// The top-level transaction that has recorded it.
    pub xid: u64,
    /// The one that recorded the end of the work; the same where the work was part of it; none
    /// while the work goes on.
    pub finished_xid: Option<u64>,
    lsn: u64,
    /// When, in microseconds since 2000-01-01.
    pub recorded_at: i64,
    /// The file whose bytes are void.
    pub storage: Storage,
    /// The relation's new file, by its number.
    pub replaced_by: Option<Oid>,
    /// The relation.
    pub relation: Oid,
    /// Its name, without its schema's.
    pub relation_name: String,
    relation_kind: u8,
    /// Tag of the statement that did it, if one is known.
    pub command: Option<String>,
    /// What has become of the bytes.
    pub effect: Effect,
    /// Whether the new file holds every version of every row of the old one.
    pub rows_kept: bool,
}

impl Record {
    /// The column `finished_xid`, counted from 0: the one by which rows are found.
    pub const FINISHED_XID: usize = 1;

    /// A record of now.
    pub fn new(xid: u64, relation: &Relation, storage: Storage, effect: Effect) -> Self {
        Self {
            xid,
            finished_xid: Some(xid),
            lsn: wal_position(),
            recorded_at: now(),
            storage,
            replaced_by: None,
            relation: relation.oid,
            relation_name: relation.name.clone(),
            relation_kind: relation.kind,
            command: None,
            effect,
            rows_kept: false,
        }
    }

    /// The rows that announce these files, of the current transaction. Without `finished`, they
    /// are those of an interval.
    pub fn announcing(targets: &[Target], finished: Option<u64>) -> Vec<Self> {
        let (xid, command) = (xid(), session::command());
        let record = |target: &Target| {
            let mut record = Self::new(xid, &target.relation, target.storage, Effect::Announced);
            record.finished_xid = finished;
            record.command.clone_from(&command);
            record
        };
        targets.iter().map(record).collect()
    }

    /// A row, to see whether a table has the columns for it.
    pub const SHAPE: [Value<'static>; 14] = [
        Value::Xid(None),
        Value::Xid(None),
        Value::Lsn(0),
        Value::Timestamp(0),
        Value::Oid(None),
        Value::Oid(None),
        Value::Oid(None),
        Value::Oid(None),
        Value::Oid(None),
        Value::Text(""),
        Value::Char(0),
        Value::OptionalText(None),
        Value::Text(""),
        Value::Bool(false),
    ];

    /// The row's values.
    pub fn values(&self) -> [Value<'_>; 14] {
        [
            Value::Xid(Some(self.xid)),
            Value::Xid(self.finished_xid),
            Value::Lsn(self.lsn),
            Value::Timestamp(self.recorded_at),
            Value::Oid(Some(self.storage.database)),
            Value::Oid(Some(self.storage.tablespace)),
            Value::Oid(Some(self.storage.filenode)),
            Value::Oid(self.replaced_by),
            Value::Oid(Some(self.relation)),
            Value::Text(&self.relation_name),
            Value::Char(self.relation_kind),
            Value::OptionalText(self.command.as_deref()),
            Value::Text(self.effect.as_str()),
            Value::Bool(self.rows_kept),
        ]
    }

    /// Reads a row.
    pub fn read(row: &Row<'_>) -> Self {
        Self {
            xid: row.xid(0).unwrap_or_default(),
            finished_xid: row.xid(1),
            lsn: row.lsn(2),
            recorded_at: row.timestamp(3),
            storage: Storage { database: row.oid(4), tablespace: row.oid(5), filenode: row.oid(6) },
            replaced_by: (!row.is_null(7)).then(|| row.oid(7)),
            relation: row.oid(8),
            relation_name: row.text(9),
            relation_kind: row.char(10),
            command: (!row.is_null(11)).then(|| row.text(11)),
            effect: Effect::parse(&row.text(12)),
            rows_kept: row.bool(13),
        }
    }
}
