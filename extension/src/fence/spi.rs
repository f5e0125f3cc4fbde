//! Queries through SPI under a chosen snapshot.

use std::ffi::{CString, c_int};
use std::marker::PhantomData;
use std::{ptr, slice, thread};

use super::row::Row;
use super::rows::column_types;
use super::text::Encoding;
use super::{Snapshot, Value, error, pg_sys};

/// A connection to SPI. What the server allocates meanwhile lies in the connection's memory
/// context and goes with it.
#[derive(Debug)]
pub struct Spi {
    encoding: Encoding,
    /// SPI belongs to the backend's one thread.
    not_send: PhantomData<*mut ()>,
}

impl Spi {
    /// Connects.
    pub fn connect() -> Self {
        // SAFETY: the caller of a SQL function is in a transaction. Connections form a stack,
        // and dropping ends the top one: ours, since whoever connects later ends before us.
        check(unsafe { pg_sys::SPI_connect() }, pg_sys::SPI_OK_CONNECT);
        Self { encoding: Encoding::of_database(), not_send: PhantomData }
    }

    /// How text of this database is to be read.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Runs a query under `snapshot`, without changing anything, and reads each row.
    ///
    /// The plan is made for these parameters and forgotten afterwards. One that is kept would
    /// in time be made for an array of unknown length, and be slow for a long one. Planning
    /// itself reads the live catalogs, whatever the snapshot; that decides how the rows are
    /// found, never which.
    pub fn select<T>(
        &self,
        query: &str,
        parameters: &[Value<'_>],
        snapshot: &Snapshot,
        mut read: impl FnMut(&Row<'_>) -> T,
    ) -> Vec<T> {
        let Ok(query) = CString::new(query) else {
            error::raise_internal("query text holds a zero byte".to_owned());
        };
        let mut types: Vec<_> = parameters.iter().map(|value| value.type_oid()).collect();
        let values: Vec<_> = parameters.iter().map(|value| value.to_datum(self.encoding)).collect();
        // SPI's marks: a blank for a value, an n for NULL.
        let nulls: Vec<_> =
            values.iter().map(|value| if value.is_some() { b' ' } else { b'n' }).collect();
        let mut values: Vec<_> =
            values.into_iter().map(|value| value.unwrap_or(pg_sys::Datum::null())).collect();

        // SAFETY: we are connected; text, types, values and marks live until the end of this
        // function and are as many as we say; the snapshot is registered. The plan and the
        // result lie in the connection's memory, and the result is freed once, by its guard.
        let result = unsafe {
            let plan =
                pg_sys::SPI_prepare(query.as_ptr(), types.len() as c_int, types.as_mut_ptr());
            if plan.is_null() {
                fail(pg_sys::SPI_result);
            }
            let status = pg_sys::SPI_execute_snapshot(
                plan,
                values.as_mut_ptr(),
                nulls.as_ptr().cast(),
                snapshot.as_raw(),
                ptr::null_mut(),
                true,
                false,
                0,
            );
            check(status, pg_sys::SPI_OK_SELECT);
            Table { table: pg_sys::SPI_tuptable, rows: pg_sys::SPI_processed as usize }
        };
        result.read(self.encoding, &mut read)
    }
}

impl Drop for Spi {
    fn drop(&mut self) {
        if !thread::panicking() {
            // SAFETY: the connection is the top one, see connect().
            unsafe { pg_sys::SPI_finish() };
        }
    }
}

/// The rows of a result.
struct Table {
    table: *mut pg_sys::SPITupleTable,
    rows: usize,
}

impl Table {
    fn read<T>(&self, encoding: Encoding, read: &mut impl FnMut(&Row<'_>) -> T) -> Vec<T> {
        // SAFETY: SPI gave the table with so many rows, and it lives as long as the guard.
        let (description, tuples) = unsafe {
            ((*self.table).tupdesc, slice::from_raw_parts((*self.table).vals, self.rows))
        };
        let types = column_types(description);
        let mut values = vec![pg_sys::Datum::null(); types.len()];
        let mut nulls = vec![true; types.len()];
        let read_tuple = |tuple: &pg_sys::HeapTuple| {
            // SAFETY: the tuple has the columns of its table's description, and there is room
            // for as many.
            unsafe {
                pg_sys::heap_deform_tuple(
                    *tuple,
                    description,
                    values.as_mut_ptr(),
                    nulls.as_mut_ptr(),
                );
            }
            read(&Row::new(&types, &values, &nulls, encoding))
        };
        tuples.iter().map(read_tuple).collect()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !thread::panicking() {
            // SAFETY: freed nowhere else; the connection that owns it is still open.
            unsafe { pg_sys::SPI_freetuptable(self.table) };
        }
    }
}

fn check(status: c_int, expected: u32) {
    if status != expected as c_int {
        fail(status);
    }
}

fn fail(status: c_int) -> ! {
    error::raise_internal(format!("SPI failed with status {status}"))
}
