//! Rows of the ledger.

use postgres::types::Oid;

use super::Scope;
use crate::Session;

/// What has become of a filenode's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Written before the work, and not confirmed.
    Announced,
    /// Another file has taken its place.
    Replaced,
    /// The same file, its content moved.
    Compacted,
    /// The same file, only pages and the tail changed.
    Pages,
    /// The relation is gone.
    Dropped,
}

impl Effect {
    /// As the ledger writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Announced => "announced",
            Self::Replaced => "replaced",
            Self::Compacted => "compacted",
            Self::Pages => "pages",
            Self::Dropped => "dropped",
        }
    }

    #[track_caller]
    fn parse(text: &str) -> Self {
        let all = [Self::Announced, Self::Replaced, Self::Compacted, Self::Pages, Self::Dropped];
        let found = all.into_iter().find(|effect| effect.name() == text);
        found.unwrap_or_else(|| panic!("the ledger has the effect {text:?}"))
    }
}

/// A row of `stillpoint.invalidation`.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The transaction that wrote it.
    pub xid: u64,
    /// The transaction that recorded the end; none while the work is not done.
    pub finished: Option<u64>,
    /// The database, or 0.
    pub database: Oid,
    /// Where the file is.
    pub tablespace: Oid,
    /// The file that is void.
    pub filenode: Oid,
    /// The file in its place.
    pub replaced_by: Option<Oid>,
    /// The relation's OID.
    pub relation: Oid,
    /// The relation's name.
    pub name: String,
    /// `pg_class.relkind`.
    pub kind: String,
    /// The command's tag.
    pub command: Option<String>,
    /// What was done.
    pub effect: Effect,
    /// Whether the file in its place has every row version.
    pub rows_kept: bool,
}

/// A moment in the ledger: what is written later has a transaction id from here on.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

impl Mark {
    /// Now.
    #[track_caller]
    #[must_use]
    pub fn now(session: &mut Session) -> Self {
        let next = "SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())";
        Self(session.number(next) as u64)
    }

    /// The condition in SQL.
    #[must_use]
    pub fn since(self) -> String {
        format!("xid >= '{}'", self.0)
    }
}

impl Entry {
    /// What was written since `mark` about relations in `scope`, and is committed.
    #[track_caller]
    #[must_use]
    pub fn since(session: &mut Session, mark: Mark, scope: Scope) -> Vec<Self> {
        let rows = session.rows(&format!(
            "SELECT xid, finished_xid, database, tablespace, filenode, replaced_by, relation, \
                    relation_name, relation_kind, command, effect, rows_kept \
               FROM stillpoint.invalidation \
              WHERE {} AND {} ORDER BY relation, xid, filenode",
            mark.since(),
            scope.entries()
        ));
        rows.into_iter().map(Self::of).collect()
    }

    #[track_caller]
    fn of(row: Vec<Option<String>>) -> Self {
        let [
            xid,
            finished,
            database,
            tablespace,
            filenode,
            replaced_by,
            relation,
            name,
            kind,
            command,
            effect,
            rows_kept,
        ] = <[_; 12]>::try_from(row).expect("twelve columns were asked for");
        let some = |value: Option<String>| value.expect("the column is NOT NULL");
        let oid = |text: String| text.parse::<Oid>().expect("an OID is a number");
        let transaction = |text: String| text.parse::<u64>().expect("an xid8 is a number");
        Self {
            xid: transaction(some(xid)),
            finished: finished.map(transaction),
            database: oid(some(database)),
            tablespace: oid(some(tablespace)),
            filenode: oid(some(filenode)),
            replaced_by: replaced_by.map(oid),
            relation: oid(some(relation)),
            name: some(name),
            kind: some(kind),
            command,
            effect: Effect::parse(&some(effect)),
            rows_kept: some(rows_kept) == "t",
        }
    }
}
