//! The table `stillpoint.invalidation`.

use std::cell::Cell;
use std::collections::BTreeMap;

use stillpoint_check::Oid;

use super::error::Hindrance;
use super::record::{Effect, Record};
use crate::fence::catalog::{self, Storage, has_extension, member_table};
use crate::fence::{Failure, Place, Row, Snapshot, Table, XidKey};

/// Rows of the ledger, by the file that they are about.
pub type Rows = BTreeMap<Storage, (Place, Record)>;

thread_local! {
    /// The ledger that was found last; 0 if none was.
    static FOUND: Cell<Oid> = const { Cell::new(0) };
    /// One that was found before in this transaction, and then was not any more.
    static LOST: Cell<Oid> = const { Cell::new(0) };
}

/// The ledger of this database, open.
#[derive(Debug)]
pub struct Ledger {
    /// The table.
    pub oid: Oid,
    table: Table,
    /// Whoever writes a table that has a TOAST table must hold a snapshot all the while
    /// (`AssertHasSnapshotForToast()` in heapam.c, since 18).
    _snapshot: Snapshot,
}

impl Ledger {
    /// The ledger's OID as far as a quick look can tell; none where the extension is not installed, or in a version without.
    pub fn find() -> Option<Oid> {
        let known = FOUND.get();
        let found = member_table(c"stillpoint", c"invalidation", known);
        if known != 0 && found != Some(known) {
            LOST.set(known);
        }
        FOUND.set(found.unwrap_or_default());
        found
    }

    /// A ledger that was there in this transaction, and is now hidden from this library: somebody
    /// has renamed it or its schema, or taken it out of the extension.
    pub fn hidden() -> Option<Oid> {
        Self::find();
        let is_there = |oid| catalog::relation(oid).is_some() && has_extension(c"stillpoint");
        Some(LOST.take()).filter(|oid| *oid != 0 && is_there(*oid))
    }

    /// A transaction has ended.
    pub fn on_end() {
        LOST.set(0);
    }

    /// Whether there is one, as far as a quick look can tell.
    pub fn exists() -> bool {
        Self::find().is_some()
    }

    /// Opens it for writing.
    pub fn open_for_writing() -> Result<Option<Self>, Failure> {
        let Some(oid) = Self::find() else { return Ok(None) };
        let Some(table) = Table::open_for_writing(oid) else { return Ok(None) };
        Self::checked(oid, table).map(Some)
    }

    /// Opens it for reading.
    pub fn open_for_reading() -> Result<Option<Self>, Failure> {
        let Some(oid) = Self::find() else { return Ok(None) };
        let Some(table) = Table::open_for_reading(oid) else { return Ok(None) };
        Self::checked(oid, table).map(Some)
    }

    fn checked(oid: Oid, table: Table) -> Result<Self, Failure> {
        // Another version's, or one that somebody has altered.
        if table.is_permanent_heap() && table.takes(&Record::SHAPE) {
            Ok(Self { oid, table, _snapshot: Snapshot::latest() })
        } else {
            Err(Hindrance::OtherTable { name: c"invalidation" }.into())
        }
    }

    /// Where the ledger's own rows are.
    pub fn storage(&self) -> Option<Storage> {
        catalog::relation(self.oid)?.storage()
    }

    /// How many rows it has. Whoever counts in a SERIALIZABLE transaction leaves no trace that could
    /// make others fail.
    pub fn count(&self) -> u64 {
        self.table.count(&Snapshot::of_each_row())
    }

    /// Writes rows; gives the place of each.
    pub fn write<'a>(&self, records: impl IntoIterator<Item = &'a Record>) -> Vec<Place> {
        let mut insertion = self.table.insert();
        records.into_iter().map(|record| insertion.row(&record.values())).collect()
    }

    /// Takes a row out, if it is still there.
    pub fn delete(&self, place: Place, record: &Record) -> bool {
        self.table.delete(place, |row| {
            let found = Record::read(row);
            (found.xid, found.storage) == (record.xid, record.storage)
        })
    }

    /// Takes out the rows of finished work that `is_old`; gives the number of the transaction that
    /// had finished each.
    pub fn prune(&self, is_old: impl Fn(&Record) -> bool) -> Vec<u64> {
        self.delete_finished(XidKey::AtLeast(0), usize::MAX, is_old)
    }

    /// Takes out rows of work that was finished by transactions below that number, and not more of
    /// them.
    pub fn prune_below(&self, xid: u64, at_most: usize) {
        self.delete_finished(XidKey::Below(xid), at_most, |_| true);
    }

    fn delete_finished(
        &self,
        key: XidKey,
        at_most: usize,
        is_old: impl Fn(&Record) -> bool,
    ) -> Vec<u64> {
        let mut old = Vec::new();
        let snapshot = Snapshot::latest();
        self.table.scan_while(Record::FINISHED_XID, key, &snapshot, |place, row| {
            let record = Record::read(row);
            if is_old(&record) {
                old.push((place, record.xid, record.storage, record.finished_xid));
            }
            old.len() < at_most
        });
        let is_gone = |(place, xid, storage, finished): (Place, u64, Storage, Option<u64>)| {
            let is_same = |row: &Row<'_>| {
                let found = Record::read(row);
                (found.xid, found.storage) == (xid, storage)
            };
            finished.filter(|_| self.table.delete(place, is_same))
        };
        old.into_iter().filter_map(is_gone).collect()
    }

    /// What the transaction of that number has announced for itself and not completed.
    pub fn announced_by(&self, xid: u64) -> Rows {
        let mine = |record: &Record| record.xid == xid && record.effect == Effect::Announced;
        by_storage(self.rows(XidKey::Is(xid), mine))
    }

    /// The rows of intervals that are open and that `wanted` names. Several can be about one file:
    /// each session announces what it is going to do.
    pub fn open_intervals(&self, wanted: impl Fn(&Record) -> bool) -> Vec<(Place, Record)> {
        self.rows(XidKey::Missing, wanted)
    }

    /// The rows of intervals that are open for `snapshot`.
    pub fn open_at(&self, snapshot: &Snapshot) -> Vec<Record> {
        let mut found = Vec::new();
        self.table.scan(Record::FINISHED_XID, XidKey::Missing, snapshot, |_, row| {
            found.push(Record::read(row));
        });
        found
    }

    /// All that was finished by the transaction of that number or a later one.
    pub fn finished_since(&self, xid: u64, snapshot: &Snapshot) -> Vec<Record> {
        let mut found = Vec::new();
        self.table.scan(Record::FINISHED_XID, XidKey::AtLeast(xid), snapshot, |_, row| {
            found.push(Record::read(row));
        });
        found
    }

    fn rows(&self, key: XidKey, wanted: impl Fn(&Record) -> bool) -> Vec<(Place, Record)> {
        let mut found = Vec::new();
        let snapshot = Snapshot::of_each_row();
        self.table.scan(Record::FINISHED_XID, key, &snapshot, |place, row| {
            let record = Record::read(row);
            if wanted(&record) {
                found.push((place, record));
            }
        });
        found
    }
}

/// The rows of one session, of which each is about another file.
pub fn by_storage(rows: Vec<(Place, Record)>) -> Rows {
    rows.into_iter().map(|(place, record)| (record.storage, (place, record))).collect()
}
