//! The rows of relations.

use bytes::Bytes;

use super::{Error, RelationRow, Session};
use crate::quote::quote_identifier;
use crate::wire;

impl Session {
    /// Asks for the rows of a table by the name that it has in the snapshot, and gives them as
    /// they come.
    ///
    /// # Errors
    ///
    /// What the server says before it begins, such as no privilege, row-level security, or a name
    /// that means nothing any more. That it has begun is no promise that the table is the right
    /// one, or that it can be read to its end.
    pub fn copy(&mut self, row: &RelationRow, encoding: &str) -> Result<Rows<'_>, Error> {
        self.client.copy(&statement(row, encoding)).map(Rows).map_err(Error::doing("start COPY"))
    }

    /// The same for many tables, one after the other. The server looks a name up when its turn
    /// has come.
    pub fn copies<'r>(
        &mut self,
        rows: impl Iterator<Item = &'r RelationRow>,
        encoding: &str,
    ) -> Copies<'_, 'r, impl Iterator<Item = (&'r RelationRow, String)>> {
        Copies(self.client.copies(rows.map(move |row| (row, statement(row, encoding)))))
    }
}

/// The tables that are read one after the other.
pub struct Copies<'a, 'r, I>(wire::Copies<'a, &'r RelationRow, I>);

impl<'r, I> Copies<'_, 'r, I>
where
    I: Iterator<Item = (&'r RelationRow, String)>,
{
    /// The next table, when the server has begun to read it, or why it has not.
    pub fn next(&mut self) -> Option<(&'r RelationRow, Result<Rows<'_>, Error>)> {
        let (row, rows) = self.0.next()?;
        Some((row, rows.map(Rows).map_err(Error::doing("start COPY"))))
    }
}

/// The rows of one table.
pub struct Rows<'a>(wire::Rows<'a>);

impl Rows<'_> {
    /// The next bytes of COPY text; nothing at its end.
    ///
    /// # Errors
    ///
    /// What the server says in the middle of a table.
    pub fn next(&mut self) -> Result<Option<Bytes>, Error> {
        self.0.next().map_err(Error::doing("read its rows"))
    }
}

/// The statement that gives the rows. Like `COPY`, it reads the relation alone and not its
/// children.
fn statement(row: &RelationRow, encoding: &str) -> String {
    let columns: Vec<String> = row.columns.iter().map(|name| quote_identifier(name)).collect();
    let columns = columns.join(", ");
    let source = match &row.configuration {
        Some((_, condition)) if !condition.is_empty() => {
            let columns = if columns.is_empty() { "*" } else { &columns };
            format!("(SELECT {columns} FROM ONLY {} {condition})", row.quoted())
        }
        _ if columns.is_empty() => row.quoted(),
        _ => format!("{} ({columns})", row.quoted()),
    };
    let option = if encoding == "SQL_ASCII" { " WITH (ENCODING 'SQL_ASCII')" } else { "" };
    format!("COPY {source} TO STDOUT{option}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: &[&str], condition: Option<&str>) -> RelationRow {
        RelationRow {
            relation: 16384,
            schema: "public".into(),
            name: "t".into(),
            kind: 'r',
            pages: 0,
            columns: columns.iter().map(|&name| name.into()).collect(),
            configuration: condition.map(|condition| (16385, condition.into())),
            owner: "postgres".into(),
        }
    }

    #[track_caller]
    fn assert_statement(row: &RelationRow, expected: &str) {
        assert_eq!(statement(row, "UTF8"), expected);
    }

    #[test]
    fn every_shape_of_table_has_its_copy_statement() {
        assert_statement(
            &row(&["id", "a\"b"], None),
            "COPY \"public\".\"t\" (\"id\", \"a\"\"b\") TO STDOUT",
        );
        assert_statement(&row(&[], None), "COPY \"public\".\"t\" TO STDOUT");
        assert_statement(&row(&["id"], Some("")), "COPY \"public\".\"t\" (\"id\") TO STDOUT");
        assert_statement(
            &row(&["id"], Some("WHERE NOT builtin")),
            "COPY (SELECT \"id\" FROM ONLY \"public\".\"t\" WHERE NOT builtin) TO STDOUT",
        );
    }

    #[test]
    fn bytes_without_an_encoding_are_not_converted() {
        assert_eq!(
            statement(&row(&["id"], None), "SQL_ASCII"),
            "COPY \"public\".\"t\" (\"id\") TO STDOUT WITH (ENCODING 'SQL_ASCII')"
        );
    }
}
