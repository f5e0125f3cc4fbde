//! Open relations, and scans of them by an index.

use std::ffi::c_int;
use std::{ptr, thread};

use stillpoint_check::Oid;

use super::{Snapshot, pg_sys};

/// An open relation.
#[derive(Debug)]
pub(super) struct OpenRelation {
    relation: pg_sys::Relation,
    /// The lock that is let go when it is closed.
    released: pg_sys::LOCKMODE,
}

/// No lock at all, as an argument of the server's functions.
const NO_LOCK: pg_sys::LOCKMODE = pg_sys::NoLock as pg_sys::LOCKMODE;

/// A lock mode on a relation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    /// ACCESS SHARE, as readers take it.
    Read = pg_sys::AccessShareLock as isize,
    /// ROW EXCLUSIVE, as writers of rows take it.
    Write = pg_sys::RowExclusiveLock as isize,
}

impl OpenRelation {
    /// Opens a catalog, or an index, for reading, and lets go of its lock when it is closed, as
    /// the server does it: a user's transaction that stays open must not keep others from it.
    pub fn open_for_a_moment(relation: Oid) -> Self {
        let mode = Mode::Read as pg_sys::LOCKMODE;
        // SAFETY: the caller is in a transaction; a relation that does not exist is an error.
        let relation = unsafe { pg_sys::relation_open(relation.into(), mode) };
        Self { relation, released: mode }
    }

    /// Opens a relation; `None` if it has been dropped by the time that the lock is had. The lock
    /// stays until the transaction ends.
    pub fn try_open(relation: Oid, mode: Mode) -> Option<Self> {
        // SAFETY: as above.
        let opened =
            unsafe { pg_sys::try_relation_open(relation.into(), mode as pg_sys::LOCKMODE) };
        // Not made before it is known to be one: its dropping closes it.
        (!opened.is_null()).then(|| Self { relation: opened, released: NO_LOCK })
    }

    pub fn as_raw(&self) -> pg_sys::Relation {
        self.relation
    }

    /// The columns, dropped ones included.
    pub fn description(&self) -> pg_sys::TupleDesc {
        // SAFETY: an open relation has a description that lives as long as it is open.
        unsafe { (*self.relation).rd_att }
    }

    /// Gives the rows that `snapshot` sees and `keys` find in `index` to `each`, which must not
    /// keep them. Without an index, all rows that the keys fit; without a snapshot, which only
    /// catalogs can do, those that are there now.
    pub fn scan(
        &self,
        index: Option<Oid>,
        keys: &mut [pg_sys::ScanKeyData],
        snapshot: Option<&Snapshot>,
        mut each: impl FnMut(pg_sys::HeapTuple),
    ) {
        self.scan_while(index, keys, snapshot, |tuple| {
            each(tuple);
            true
        });
    }

    /// The same, as long as `each` gives true.
    pub fn scan_while(
        &self,
        index: Option<Oid>,
        keys: &mut [pg_sys::ScanKeyData],
        snapshot: Option<&Snapshot>,
        mut each: impl FnMut(pg_sys::HeapTuple) -> bool,
    ) {
        let scan = Scan::begin(self, index, keys, snapshot);
        while scan.next().is_some_and(&mut each) {}
    }
}

impl Drop for OpenRelation {
    fn drop(&mut self) {
        if !thread::panicking() {
            // SAFETY: opened once, by us, for the resource owner that is still current.
            unsafe { pg_sys::relation_close(self.relation, self.released) };
        }
    }
}

/// A running scan, by the functions that the server uses for its catalogs. They work on every
/// heap table.
struct Scan(pg_sys::SysScanDesc);

impl Scan {
    fn begin(
        relation: &OpenRelation,
        index: Option<Oid>,
        keys: &mut [pg_sys::ScanKeyData],
        snapshot: Option<&Snapshot>,
    ) -> Self {
        // SAFETY: relation and snapshot are held by the caller for longer than the scan, which
        // copies the keys or is done with them before it returns.
        Self(unsafe {
            pg_sys::systable_beginscan(
                relation.relation,
                index.unwrap_or_default().into(),
                index.is_some(),
                snapshot.map_or(none(), Snapshot::as_raw),
                keys.len() as c_int,
                keys.as_mut_ptr(),
            )
        })
    }
}

impl Scan {
    /// The next row, which is valid until another one is asked for.
    fn next(&self) -> Option<pg_sys::HeapTuple> {
        // SAFETY: the scan is open.
        let tuple = unsafe { pg_sys::systable_getnext(self.0) };
        (!tuple.is_null()).then_some(tuple)
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        if !thread::panicking() {
            // SAFETY: begun once, by us. After an error the resource owner gives back what the
            // scan has pinned.
            unsafe { pg_sys::systable_endscan(self.0) };
        }
    }
}

/// A key `column = value`, by the comparison function with that OID.
pub(super) fn equals(column: u32, function: u32, value: pg_sys::Datum) -> pg_sys::ScanKeyData {
    let mut key = pg_sys::ScanKeyData::default();
    // SAFETY: the server fills in the key, looking up a function that is built in.
    unsafe {
        pg_sys::ScanKeyInit(
            &raw mut key,
            column as pg_sys::AttrNumber,
            pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
            function.into(),
            value,
        );
    }
    key
}

/// A key `column >= value`, by the comparison function with that OID.
pub(super) fn at_least(column: u32, function: u32, value: pg_sys::Datum) -> pg_sys::ScanKeyData {
    let mut key = equals(column, function, value);
    key.sk_strategy = pg_sys::BTGreaterEqualStrategyNumber as pg_sys::StrategyNumber;
    key
}

/// A key `column < value`, by the comparison function with that OID.
pub(super) fn below(column: u32, function: u32, value: pg_sys::Datum) -> pg_sys::ScanKeyData {
    let mut key = equals(column, function, value);
    key.sk_strategy = pg_sys::BTLessStrategyNumber as pg_sys::StrategyNumber;
    key
}

/// A key `column = ANY (values)`, an array, by the comparison function of its elements with that
/// OID. Only an index can look for it: HeapKeyTest() knows no arrays.
pub(super) fn equals_any(column: u32, function: u32, values: pg_sys::Datum) -> pg_sys::ScanKeyData {
    let mut key = equals(column, function, values);
    key.sk_flags |= pg_sys::SK_SEARCHARRAY as c_int;
    key
}

/// `InvalidStrategy` in stratnum.h.
const NO_STRATEGY: pg_sys::StrategyNumber = 0;

/// A key `column IS NULL` (`ScanKeyEntryInitialize()` asks for no function then).
pub(super) fn is_null(column: u32) -> pg_sys::ScanKeyData {
    let mut key = pg_sys::ScanKeyData::default();
    // SAFETY: as in equals().
    unsafe {
        pg_sys::ScanKeyEntryInitialize(
            &raw mut key,
            (pg_sys::SK_SEARCHNULL | pg_sys::SK_ISNULL) as c_int,
            column as pg_sys::AttrNumber,
            NO_STRATEGY,
            pg_sys::InvalidOid,
            pg_sys::InvalidOid,
            pg_sys::InvalidOid,
            pg_sys::Datum::null(),
        );
    }
    key
}

/// The structure at the head of a catalog's row (`GETSTRUCT()` in htup_details.h).
///
/// # Safety
///
/// The tuple is a row of the catalog that `T` describes.
pub(super) unsafe fn fields<T>(tuple: pg_sys::HeapTuple) -> *const T {
    // SAFETY: the caller's promise; a tuple's data begins where its header says.
    unsafe {
        let header = (*tuple).t_data;
        header.cast::<u8>().add(usize::from((*header).t_hoff)).cast()
    }
}

/// Nothing, as a pointer argument of the server's functions.
pub(super) const fn none<T>() -> *mut T {
    ptr::null_mut()
}
