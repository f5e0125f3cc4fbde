//! What the archive's table of contents says of rows, sequences and materialized views.

use std::collections::{HashMap, HashSet};

use stillpoint_check::Oid;

use super::sequences::Valued;
use super::{AttemptEnd, Error};
use crate::archive::{
    Creator, DumpId, MaterializedViewData, SequenceSet, TableData, Toc, copy_statement,
};
use crate::quote::{quote_identifier, quote_qualified};
use crate::server::{RelationRow, Session};

impl Valued {
    /// Adds the tables' entries, in the order of a restore without -j (the export's own order is
    /// another): by name, but for an extension's tables, whose foreign keys are there before
    /// the rows, what they refer to before what refers to it.
    pub fn add_tables(&mut self, mut rows: Vec<&RelationRow>) -> Result<(), AttemptEnd> {
        rows.sort_unstable_by(|a, b| (&a.schema, &a.name).cmp(&(&b.schema, &b.name)));
        let configuration: Vec<Oid> =
            rows.iter().filter(|row| row.configuration.is_some()).map(|row| row.relation).collect();
        let references = self.snapshot.connected.session.references(&configuration)?;

        let mut entries: HashMap<Oid, DumpId> = HashMap::new();
        while !rows.is_empty() {
            let targets = |row: &RelationRow| references.get(&row.relation).into_iter().flatten();
            let (mut free, mut waiting): (Vec<_>, Vec<_>) =
                rows.iter().partition(|row| targets(row).all(|it| entries.contains_key(it)));
            if free.is_empty() {
                // They refer to each other in a circle: no order is right, pg_dump's neither.
                free = std::mem::take(&mut waiting);
            }
            for row in free {
                let after: Vec<DumpId> =
                    targets(row).filter_map(|it| entries.get(it)).copied().collect();
                entries.insert(row.relation, add_table(&mut self.toc, row, &after)?);
            }
            rows = waiting;
        }
        Ok(())
    }

    /// Adds what follows from sequences and materialized views.
    pub fn add_values(&mut self, left_out: &HashSet<Oid>) -> Result<(), AttemptEnd> {
        let values: HashMap<Oid, _> =
            self.sequences.values.iter().map(|value| (value.relation, value)).collect();
        for sequence in &self.sequences.all {
            if left_out.contains(&sequence.relation) {
                continue;
            }
            let qualified_name = quote_qualified(&sequence.schema, &sequence.name);
            let Some(value) = values.get(&sequence.relation) else {
                return Err(Error::NoValue { sequence: qualified_name }.into());
            };
            self.toc.add_sequence_set(SequenceSet {
                oid: sequence.relation,
                created_by: match &sequence.configuration {
                    None => Creator::Archive,
                    Some(row) => creator(row),
                },
                qualified_name: &qualified_name,
                last_value: value.last_value,
                is_called: value.is_called,
            })?;
        }
        add_refreshes(&mut self.toc, &mut self.snapshot.connected.session)
    }
}

fn add_table(toc: &mut Toc, row: &RelationRow, after: &[DumpId]) -> Result<DumpId, AttemptEnd> {
    let columns: Vec<String> = row.columns.iter().map(|name| quote_identifier(name)).collect();
    Ok(toc.add_table_data(TableData {
        oid: row.relation,
        created_by: creator(row),
        copy_statement: &copy_statement(&row.quoted(), &columns),
        after,
    })?)
}

fn creator(row: &RelationRow) -> Creator<'_> {
    match row.configuration {
        None => Creator::Archive,
        Some(_) => Creator::Extension { schema: &row.schema, name: &row.name, owner: &row.owner },
    }
}

/// Refreshes of the materialized views that hold rows, those that others read first.
fn add_refreshes(toc: &mut Toc, session: &mut Session) -> Result<(), AttemptEnd> {
    let views = toc.materialized_views();
    let oids: Vec<Oid> = views.iter().map(|view| view.oid).collect();
    let mut reads = session.populated_views(&oids)?;
    // As pg_dump does: what reads a view without rows cannot be refreshed, and so on upwards.
    while let Some(view) = views.iter().find(|view| {
        let is_empty = |input: &Oid| oids.contains(input) && !reads.contains_key(input);
        reads.get(&view.oid).is_some_and(|inputs| inputs.iter().any(is_empty))
    }) {
        tracing::warn!(
            "materialized view {}.{} reads one that holds no rows: it will not be refreshed",
            view.schema,
            view.name
        );
        reads.remove(&view.oid);
    }
    let mut added: HashMap<Oid, DumpId> = HashMap::new();
    while !reads.is_empty() {
        let is_free = |inputs: &[Oid], reads: &HashMap<Oid, Vec<Oid>>| {
            inputs.iter().all(|input| !reads.contains_key(input))
        };
        let free: Vec<_> = views
            .iter()
            .filter(|view| reads.get(&view.oid).is_some_and(|inputs| is_free(inputs, &reads)))
            .collect();
        if free.is_empty() {
            // Views cannot read each other in a circle; if the catalogs say so they are
            // damaged, and the rest is not refreshed.
            tracing::warn!("materialized views read each other in a circle: not refreshed");
            break;
        }
        for view in free {
            let inputs = reads.remove(&view.oid).unwrap_or_default();
            let after: Vec<DumpId> =
                inputs.iter().filter_map(|input| added.get(input)).copied().collect();
            let id = toc.add_materialized_view_data(MaterializedViewData {
                oid: view.oid,
                qualified_name: &quote_qualified(&view.schema, &view.name),
                after: &after,
            })?;
            added.insert(view.oid, id);
        }
    }
    Ok(())
}
