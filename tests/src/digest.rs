//! What is in a table, in two values.

use std::fmt;

use crate::Session;

/// Number and checksum of a table's rows; equal for the same rows in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDigest {
    /// How many rows.
    pub rows: i64,
    /// A sum over the rows' text form.
    pub checksum: String,
}

impl fmt::Display for TableDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows, checksum {}", self.rows, self.checksum)
    }
}

/// The digest of what `SELECT ... FROM table` gives; `table` is SQL text, for example `s.t` or
/// `ONLY "s"."t"`.
#[track_caller]
pub fn table_digest(session: &mut Session, table: &str) -> TableDigest {
    let mut rows = session.rows(&digest_query(table));
    let mut row = rows.swap_remove(0).into_iter().flatten();
    let mut next = || row.next().expect("neither value is NULL");
    TableDigest { rows: next().parse().expect("a count is a number"), checksum: next() }
}

/// The query of a table's digest: its number of rows, their checksum.
pub(crate) fn digest_query(table: &str) -> String {
    format!(
        "SELECT pg_catalog.count(*), \
                COALESCE(pg_catalog.sum(pg_catalog.hashtextextended(digested::text, 0)::numeric), 0) \
           FROM {table} AS digested"
    )
}
