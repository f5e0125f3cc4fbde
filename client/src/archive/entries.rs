//! The entries that are added to a table of contents, field by field as `pg_dump` writes them.

use libpgdump::{Entry, ObjectType, OffsetState, Section};

use super::error::TocError;
use super::toc::{DumpId, Toc};
use crate::quote::quote_literal;

/// The rows of a table.
#[derive(Debug, Clone, Copy)]
pub struct TableData<'a> {
    /// The table's OID.
    pub oid: u32,
    /// Who creates it.
    pub created_by: Creator<'a>,
    /// What loads the rows, made by [`copy_statement`].
    pub copy_statement: &'a str,
    /// Entries that must be restored before, such as the rows that foreign keys of an
    /// extension's tables refer to: those exist when the data is loaded.
    pub after: &'a [DumpId],
}

/// Who creates the relation that data is loaded into.
#[derive(Debug, Clone, Copy)]
pub enum Creator<'a> {
    /// The archive, by an entry of its own.
    Archive,
    /// An extension, whose configuration it is: the archive has no entry for it.
    Extension {
        /// The relation's schema.
        schema: &'a str,
        /// The relation's name.
        name: &'a str,
        /// The relation's owner.
        owner: &'a str,
    },
}

/// The value of a sequence.
#[derive(Debug, Clone, Copy)]
pub struct SequenceSet<'a> {
    /// The sequence's OID.
    pub oid: u32,
    /// Who creates it.
    pub created_by: Creator<'a>,
    /// The sequence's name with its schema, quoted as an SQL identifier.
    pub qualified_name: &'a str,
    /// Its last value.
    pub last_value: i64,
    /// Whether that value has been handed out.
    pub is_called: bool,
}

/// The refresh of a materialized view.
#[derive(Debug, Clone, Copy)]
pub struct MaterializedViewData<'a> {
    /// The view's OID.
    pub oid: u32,
    /// The view's name with its schema, quoted as an SQL identifier.
    pub qualified_name: &'a str,
    /// Entries that must be restored before: refreshes of the materialized views that it reads,
    /// through views as well. Rows of tables need not be named, since all of them come before.
    pub after: &'a [DumpId],
}

/// The statement that loads rows of a table, as it stands in an archive. The names must be quoted
/// already, by the server, which knows its keywords.
pub fn copy_statement<S: AsRef<str>>(qualified_name: &str, columns: &[S]) -> String {
    let mut statement = format!("COPY {qualified_name} ");
    for (position, column) in columns.iter().enumerate() {
        statement.push_str(if position == 0 { "(" } else { ", " });
        statement.push_str(column.as_ref());
    }
    if !columns.is_empty() {
        statement.push(')');
    }
    statement.push_str(" FROM stdin;\n");
    statement
}

impl Toc {
    /// Adds the rows of a table, which are in the file [`data_file_name`].
    ///
    /// A restore without `-j` loads tables in the order in which they are added here.
    pub fn add_table_data(&mut self, table: TableData<'_>) -> Result<DumpId, TocError> {
        let (schema, name, owner, created_by) = match table.created_by {
            Creator::Archive => {
                let entry = self.table_entry(table.oid)?;
                let names = (entry.namespace.clone(), entry.tag.clone(), entry.owner.clone());
                (names.0, names.1, names.2, entry.dump_id)
            }
            Creator::Extension { schema, name, owner } => {
                // The first dependency of table data must be the number of a table that no
                // other table data has, or pg_restore mixes them up; pg_dump gives the number
                // that the table's entry would have had.
                let id = self.reserve_id()?;
                (Some(schema.to_owned()), Some(name.to_owned()), Some(owner.to_owned()), id)
            }
        };
        let dump_id = self.reserve_id()?;
        let mut dependencies = vec![created_by];
        dependencies.extend_from_slice(table.after);
        self.push_data(Entry {
            had_dumper: true,
            oid: table.oid.to_string(),
            copy_stmt: Some(table.copy_statement.to_owned()),
            filename: Some(data_file_name(table.oid)),
            data_state: OffsetState::NotSet,
            dependencies,
            ..entry(dump_id, ObjectType::TableData, Section::Data, schema, name, owner)
        });
        Ok(dump_id)
    }

    /// Adds the value of a sequence.
    pub fn add_sequence_set(&mut self, sequence: SequenceSet<'_>) -> Result<DumpId, TocError> {
        let (dependencies, schema, name, owner) = match sequence.created_by {
            Creator::Archive => {
                let entry = self.sequence_entry(sequence.oid)?;
                let names = (entry.namespace.clone(), entry.tag.clone(), entry.owner.clone());
                (vec![entry.dump_id], names.0, names.1, names.2)
            }
            Creator::Extension { schema, name, owner } => {
                (Vec::new(), Some(schema.to_owned()), Some(name.to_owned()), Some(owner.to_owned()))
            }
        };
        let dump_id = self.reserve_id()?;
        self.push_data(Entry {
            defn: Some(format!(
                "SELECT pg_catalog.setval({}, {}, {});\n",
                quote_literal(sequence.qualified_name),
                sequence.last_value,
                sequence.is_called
            )),
            dependencies,
            ..entry(dump_id, ObjectType::SequenceSet, Section::Data, schema, name, owner)
        });
        Ok(dump_id)
    }

    /// Adds the refresh of a materialized view. A restore without `-j` refreshes in the order of
    /// adding.
    pub fn add_materialized_view_data(
        &mut self,
        view: MaterializedViewData<'_>,
    ) -> Result<DumpId, TocError> {
        let creating = self.materialized_view_entry(view.oid)?;
        let (created_by, schema, name, owner) = (
            creating.dump_id,
            creating.namespace.clone(),
            creating.tag.clone(),
            creating.owner.clone(),
        );
        let dump_id = self.reserve_id()?;
        let mut dependencies = vec![created_by];
        dependencies.extend_from_slice(view.after);
        self.push_refresh(Entry {
            oid: view.oid.to_string(),
            defn: Some(format!("REFRESH MATERIALIZED VIEW {};\n", view.qualified_name)),
            dependencies,
            ..entry(
                dump_id,
                ObjectType::MaterializedViewData,
                Section::PostData,
                schema,
                name,
                owner,
            )
        });
        Ok(dump_id)
    }
}

/// The name of a table's data file, without the extension of the codec.
///
/// `pg_dump` names files by the numbers of their entries. Those are not known before it has
/// written the table of contents, and rows are written before that; each entry says which file
/// it means.
pub fn data_file_name(table: u32) -> String {
    format!("{table}.dat")
}

/// An entry with what all entries have, and nothing else.
fn entry(
    dump_id: DumpId,
    desc: ObjectType,
    section: Section,
    namespace: Option<String>,
    tag: Option<String>,
    owner: Option<String>,
) -> Entry {
    Entry {
        dump_id,
        had_dumper: false,
        table_oid: "0".to_owned(),
        oid: "0".to_owned(),
        tag,
        desc,
        section,
        defn: None,
        drop_stmt: None,
        copy_stmt: None,
        namespace,
        tablespace: None,
        tableam: None,
        relkind: None,
        owner,
        with_oids: false,
        dependencies: Vec::new(),
        data_state: OffsetState::NoData,
        offset: 0,
        filename: None,
    }
}
