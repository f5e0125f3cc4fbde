//! Rows as the server gives them, read column by column.

use stillpoint_check::Oid;

use super::{Encoding, compat, datum, error, pg_sys};

/// A row. Columns are numbered from 0. To read one as another type than it has is
/// an error. NULL reads as the type's empty value.
#[derive(Debug)]
pub struct Row<'a> {
    types: &'a [pg_sys::Oid],
    values: &'a [pg_sys::Datum],
    nulls: &'a [bool],
    encoding: Encoding,
}

impl<'a> Row<'a> {
    /// The row of which these are the columns' types, values and marks of NULL, each as many.
    pub(super) fn new(
        types: &'a [pg_sys::Oid],
        values: &'a [pg_sys::Datum],
        nulls: &'a [bool],
        encoding: Encoding,
    ) -> Self {
        Self { types, values, nulls, encoding }
    }

    /// A column of type `xid8`.
    pub fn xid(&self, column: usize) -> Option<u64> {
        self.value(column, pg_sys::XID8OID).map(datum::read_xid)
    }

    /// A column of type `bool`; false for NULL.
    pub fn bool(&self, column: usize) -> bool {
        self.value(column, pg_sys::BOOLOID).is_some_and(|datum| datum.value() != 0)
    }

    /// A column of type `"char"`; 0 for NULL.
    pub fn char(&self, column: usize) -> u8 {
        self.value(column, pg_sys::CHAROID).map_or(0, |datum| datum.value() as u8)
    }

    /// A column of type `pg_lsn`; 0 for NULL.
    pub fn lsn(&self, column: usize) -> u64 {
        self.value(column, compat::PG_LSN).map_or(0, |datum| datum.value() as u64)
    }

    /// A column of type `timestamptz`, in microseconds since 2000-01-01; 0 for NULL.
    pub fn timestamp(&self, column: usize) -> i64 {
        self.value(column, pg_sys::TIMESTAMPTZOID).map_or(0, |datum| datum.value() as i64)
    }

    /// A column of type `bigint`; 0 for NULL.
    pub fn bigint(&self, column: usize) -> i64 {
        self.value(column, pg_sys::INT8OID).map_or(0, |datum| datum.value() as i64)
    }

    /// Whether a column is NULL.
    pub fn is_null(&self, column: usize) -> bool {
        self.nulls[column]
    }

    /// A column of type `oid`; 0 for NULL.
    pub fn oid(&self, column: usize) -> Oid {
        self.value(column, pg_sys::OIDOID).map_or(0, datum::read_oid)
    }

    /// A column of type `text`; empty for NULL.
    pub fn text(&self, column: usize) -> String {
        let value = self.value(column, pg_sys::TEXTOID);
        // SAFETY: the column has that type, and the value is not NULL.
        value.map_or_else(String::new, |datum| unsafe { datum::read_text(datum, self.encoding) })
    }

    /// A column of type `oid[]`; no elements for NULL.
    pub fn oids(&self, column: usize) -> Vec<Oid> {
        let value = self.value(column, pg_sys::OIDARRAYOID);
        // SAFETY: the column has that type, and the value is not NULL.
        let elements = value.map_or_else(Vec::new, |datum| unsafe { datum::read_oid_array(datum) });
        elements.into_iter().flatten().collect()
    }

    fn value(&self, column: usize, expected: pg_sys::Oid) -> Option<pg_sys::Datum> {
        let found = self.types[column];
        if found != expected {
            error::raise_internal(format!(
                "column {column} of a query has type {found}, not {expected}"
            ));
        }
        (!self.nulls[column]).then(|| self.values[column])
    }
}
