//! A table that this library writes by itself.
//!
//! Rows go in and out by the functions beneath the executor: no right is asked for, no trigger,
//! rule, policy or statement of the user takes part, a READ ONLY transaction can do it, and
//! what is inserted is marked as nothing to be decoded logically. (A publication FOR ALL TABLES
//! would otherwise send it to a subscriber that has no such table, and stop there.) What is
//! deleted leaves no old row in the WAL, because the table's REPLICA IDENTITY is NOTHING, and
//! without that nothing is published.

use std::{slice, thread};

use stillpoint_check::Oid;

use super::relation::{Mode, OpenRelation, at_least, below, equals, is_null};
use super::row::Row;
use super::rows::column_types;
use super::{Encoding, Snapshot, Value, compat, datum, error, list, pg_sys};

/// Where a row of a table stands, as long as nothing rewrites the table.
#[derive(Clone, Copy, Debug)]
pub struct Place(pg_sys::ItemPointerData);

/// What a scan looks for in a column of type `xid8`.
#[derive(Clone, Copy, Debug)]
pub enum XidKey {
    /// NULL.
    Missing,
    /// That number.
    Is(u64),
    /// That number or a later one.
    AtLeast(u64),
    /// An earlier one.
    Below(u64),
}

/// An open table. Of columns that were dropped it does not speak.
#[derive(Debug)]
pub struct Table {
    relation: OpenRelation,
    /// Where in a row each column stands.
    positions: Vec<usize>,
    types: Vec<pg_sys::Oid>,
    encoding: Encoding,
}

impl Table {
    /// Opens a table for writing, which waits for whoever has locked it whole; `None` if it has
    /// been dropped.
    #[must_use]
    pub fn open_for_writing(table: Oid) -> Option<Self> {
        OpenRelation::try_open(table, Mode::Write).map(Self::new)
    }

    /// Opens a table for reading; `None` if it has been dropped.
    #[must_use]
    pub fn open_for_reading(table: Oid) -> Option<Self> {
        OpenRelation::try_open(table, Mode::Read).map(Self::new)
    }

    fn new(relation: OpenRelation) -> Self {
        // A dropped column has no type.
        let all = column_types(relation.description()).into_iter().enumerate();
        let (positions, types) = all.filter(|(_, kind)| *kind != pg_sys::InvalidOid).unzip();
        Self { relation, positions, types, encoding: Encoding::of_database() }
    }

    /// How many columns a row has, dropped ones included.
    fn width(&self) -> usize {
        // SAFETY: every description counts its columns.
        usize::try_from(unsafe { (*self.relation.description()).natts }).unwrap_or(0)
    }

    /// Whether it is what this module can write: a table of the server's own access method that
    /// survives a crash.
    #[must_use]
    pub fn is_permanent_heap(&self) -> bool {
        // SAFETY: an open relation has its row of pg_class.
        let class = unsafe { &*(*self.relation.as_raw()).rd_rel };
        class.relkind as u8 == b'r'
            && class.relpersistence as u8 == b'p'
            && class.relam.to_u32() == super::catalog::HEAP
    }

    /// Whether a row of these values is a row of this table.
    #[must_use]
    pub fn takes(&self, row: &[Value<'_>]) -> bool {
        row.iter().map(|value| value.type_oid()).eq(self.types.iter().copied())
    }

    /// The rows that `snapshot` sees and whose `column` (from 0), of type `xid8`, is as `key`
    /// says, with their places: by the index on that column, or by reading the whole table if a
    /// superuser has dropped it or the server is told not to use any.
    pub fn scan(
        &self,
        column: usize,
        key: XidKey,
        snapshot: &Snapshot,
        mut each: impl FnMut(Place, &Row<'_>),
    ) {
        self.scan_while(column, key, snapshot, |place, row| {
            each(place, row);
            true
        });
    }

    /// The same, as long as `each` gives true.
    pub fn scan_while(
        &self,
        column: usize,
        key: XidKey,
        snapshot: &Snapshot,
        mut each: impl FnMut(Place, &Row<'_>) -> bool,
    ) {
        let position = self.positions[column];
        let number = position as u32 + 1;
        let index = self.index_on(number);
        let mut keys = match key {
            // Only an index can look for it: HeapKeyTest() finds no NULL.
            XidKey::Missing if index.is_none() => Vec::new(),
            XidKey::Missing => vec![is_null(number)],
            XidKey::Is(xid) => vec![equals(number, pg_sys::F_XID8EQ, datum::wide(xid))],
            XidKey::AtLeast(xid) => vec![at_least(number, pg_sys::F_XID8GE, datum::wide(xid))],
            XidKey::Below(xid) => vec![below(number, pg_sys::F_XID8LT, datum::wide(xid))],
        };
        self.read(index, &mut keys, snapshot, |place, row| {
            (matches!(key, XidKey::Missing) && !row.is_null(column)) || each(place, row)
        });
    }

    fn read(
        &self,
        index: Option<Oid>,
        keys: &mut [pg_sys::ScanKeyData],
        snapshot: &Snapshot,
        mut each: impl FnMut(Place, &Row<'_>) -> bool,
    ) {
        let mut values = vec![pg_sys::Datum::null(); self.width()];
        let mut nulls = vec![true; self.width()];
        self.relation.scan_while(index, keys, Some(snapshot), |tuple| {
            // SAFETY: the tuple is one of this table, and there is room for all its columns.
            let place = unsafe {
                self.deform(tuple, &mut values, &mut nulls);
                Place((*tuple).t_self)
            };
            let (values, nulls) = self.live(&values, &nulls);
            each(place, &Row::new(&self.types, &values, &nulls, self.encoding))
        });
    }

    /// All rows that `snapshot` sees, with their places.
    pub fn each(&self, snapshot: &Snapshot, mut each: impl FnMut(Place, &Row<'_>)) {
        self.read(None, &mut [], snapshot, |place, row| {
            each(place, row);
            true
        });
    }

    /// How many rows there are for `snapshot`.
    #[must_use]
    pub fn count(&self, snapshot: &Snapshot) -> u64 {
        let mut count = 0;
        self.relation.scan(None, &mut [], Some(snapshot), |_| count += 1);
        count
    }

    /// A B-tree that finds values of a column, and NULL: valid, not partial, on that column.
    fn index_on(&self, number: u32) -> Option<Oid> {
        // SAFETY: a variable of the server, and a list in the current memory context.
        let list = unsafe {
            if pg_sys::IgnoreSystemIndexes {
                return None;
            }
            pg_sys::RelationGetIndexList(self.relation.as_raw())
        };
        let usable = |index: &Oid| {
            let index = OpenRelation::open_for_a_moment(*index);
            // SAFETY: an open index has its rows of pg_class and pg_index.
            unsafe {
                let form = &*(*index.as_raw()).rd_index;
                (*(*index.as_raw()).rd_rel).relam == pg_sys::BTREE_AM_OID
                    && form.indisvalid
                    && form.indnatts == 1
                    && u32::try_from(form.indkey.values.as_slice(1)[0]) == Ok(number)
                    && pg_sys::RelationGetIndexPredicate(index.as_raw()).is_null()
            }
        };
        // SAFETY: as above.
        unsafe { list::oids(list) }.find(usable)
    }

    /// Deletes the row at `place` if it is still the one that the caller has seen there; gives
    /// whether it was. It may be gone, or another in its place, where a superuser deletes rows,
    /// too.
    pub fn delete(&self, place: Place, is_same: impl FnOnce(&Row<'_>) -> bool) -> bool {
        if !self.at(place, is_same) {
            return false;
        }
        let mut place = place.0;
        let mut failure = pg_sys::TM_FailureData::default();
        // SAFETY: the relation is open for writing, and the place is one of its rows.
        let result = unsafe {
            pg_sys::heap_delete(
                self.relation.as_raw(),
                &raw mut place,
                pg_sys::GetCurrentCommandId(true),
                super::relation::none(),
                true,
                &raw mut failure,
                false,
            )
        };
        result == pg_sys::TM_Result::TM_Ok
    }

    /// Whether there is a row at `place`, and `is_same` of it.
    fn at(&self, place: Place, is_same: impl FnOnce(&Row<'_>) -> bool) -> bool {
        let mut tuple = pg_sys::HeapTupleData { t_self: place.0, ..Default::default() };
        let snapshot = Snapshot::of_each_row();
        // SAFETY: the relation is open. The row is valid while its buffer is pinned, which after
        // an error the resource owner unpins.
        unsafe {
            let Some(buffer) =
                compat::heap_fetch(self.relation.as_raw(), &snapshot, &raw mut tuple)
            else {
                return false;
            };
            let mut values = vec![pg_sys::Datum::null(); self.width()];
            let mut nulls = vec![true; self.width()];
            self.deform(&raw mut tuple, &mut values, &mut nulls);
            let (values, nulls) = self.live(&values, &nulls);
            let same = is_same(&Row::new(&self.types, &values, &nulls, self.encoding));
            pg_sys::ReleaseBuffer(buffer);
            same
        }
    }

    /// # Safety
    ///
    /// The tuple is one of this table, and there is room for all its columns.
    unsafe fn deform(
        &self,
        tuple: pg_sys::HeapTuple,
        values: &mut [pg_sys::Datum],
        nulls: &mut [bool],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            pg_sys::heap_deform_tuple(
                tuple,
                self.relation.description(),
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
            );
        }
    }

    /// The columns that were not dropped.
    fn live(&self, values: &[pg_sys::Datum], nulls: &[bool]) -> (Vec<pg_sys::Datum>, Vec<bool>) {
        self.positions.iter().map(|&position| (values[position], nulls[position])).unzip()
    }

    /// Begins to insert rows.
    pub fn insert(&self) -> Insertion<'_> {
        // SAFETY: the relation is open for writing; its indexes and a slot for its rows are
        // closed and freed when the insertion is dropped.
        unsafe {
            let indexes = pg_sys::CatalogOpenIndexes(self.relation.as_raw());
            let slot = pg_sys::MakeSingleTupleTableSlot(
                self.relation.description(),
                &raw const pg_sys::TTSOpsHeapTuple,
            );
            Insertion { table: self, indexes, slot }
        }
    }
}

/// Rows on their way into a table and its indexes (`CatalogTupleInsert()` in indexing.c, but for
/// the mark that nothing is to be decoded).
pub struct Insertion<'a> {
    table: &'a Table,
    indexes: pg_sys::CatalogIndexState,
    slot: *mut pg_sys::TupleTableSlot,
}

impl Insertion<'_> {
    /// Inserts a row; gives its place. Its values must be of the table's types.
    pub fn row(&mut self, row: &[Value<'_>]) -> Place {
        if !self.table.takes(row) {
            error::raise_internal("a row does not have the table's columns".to_owned());
        }
        let mut values = vec![pg_sys::Datum::null(); self.table.width()];
        let mut nulls = vec![true; self.table.width()];
        for (value, &position) in row.iter().zip(&self.table.positions) {
            if let Some(datum) = value.to_datum(self.table.encoding) {
                values[position] = datum;
                nulls[position] = false;
            }
        }
        let relation = self.table.relation.as_raw();
        // SAFETY: values and marks are as many, and of the types, that the description says.
        // The tuple lies in the current memory context and is freed after its last use.
        unsafe {
            let tuple = pg_sys::heap_form_tuple(
                self.table.relation.description(),
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
            );
            pg_sys::heap_insert(
                relation,
                tuple,
                pg_sys::GetCurrentCommandId(true),
                pg_sys::HEAP_INSERT_NO_LOGICAL as i32,
                super::relation::none(),
            );
            let place = (*tuple).t_self;
            self.index(tuple);
            pg_sys::heap_freetuple(tuple);
            Place(place)
        }
    }

    /// Makes the row known to every index (`CatalogIndexInsert()` in indexing.c).
    ///
    /// # Safety
    ///
    /// The tuple has just been inserted into the table.
    unsafe fn index(&mut self, tuple: pg_sys::HeapTuple) {
        // SAFETY: the server has opened so many indexes. The slot does not own the tuple: once
        // that is freed, the slot is only given another one, or dropped.
        unsafe {
            let info = &*self.indexes;
            let count = usize::try_from(info.ri_NumIndices).unwrap_or(0);
            if count == 0 {
                return;
            }
            let relations = slice::from_raw_parts(info.ri_IndexRelationDescs, count);
            let infos = slice::from_raw_parts(info.ri_IndexRelationInfo, count);
            pg_sys::ExecStoreHeapTuple(tuple, self.slot, false);
            for (&relation, &index) in relations.iter().zip(infos) {
                if !(*index).ii_ReadyForInserts {
                    continue;
                }
                if !(*index).ii_Expressions.is_null() || !(*index).ii_Predicate.is_null() {
                    error::raise_internal(
                        "stillpoint cannot keep up an index on expressions, or of a part of the \
                         rows, on its own table"
                            .to_owned(),
                    );
                }
                let mut values = [pg_sys::Datum::null(); pg_sys::INDEX_MAX_KEYS as usize];
                let mut nulls = [true; pg_sys::INDEX_MAX_KEYS as usize];
                pg_sys::FormIndexDatum(
                    index,
                    self.slot,
                    super::relation::none(),
                    values.as_mut_ptr(),
                    nulls.as_mut_ptr(),
                );
                compat::index_insert(
                    relation,
                    values.as_mut_ptr(),
                    nulls.as_mut_ptr(),
                    &raw mut (*tuple).t_self,
                    self.table.relation.as_raw(),
                    index,
                );
            }
        }
    }
}

impl Drop for Insertion<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            // SAFETY: opened and made once, by us.
            unsafe {
                pg_sys::ExecDropSingleTupleTableSlot(self.slot);
                pg_sys::CatalogCloseIndexes(self.indexes);
            }
        }
    }
}
