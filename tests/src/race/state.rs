//! What a database holds, in a form that tells what differs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::BARRIER;
use crate::{Session, table_digest};

/// Every relation of the database but the barrier, with its definition and its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseState {
    relations: BTreeMap<String, RelationState>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RelationState {
    definition: String,
    content: String,
    /// Of tables; partitioned ones and materialized views have none of their own.
    rows: Option<i64>,
}

const RELATIONS: &str = "\
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname),
       c.relkind,
       pg_catalog.concat_ws('; ',
           c.relkind::text || c.relpersistence::text,
           (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', a.attname,
                       pg_catalog.format_type(a.atttypid, a.atttypmod),
                       pg_catalog.pg_get_expr(d.adbin, d.adrelid)), ', ' ORDER BY a.attnum)
              FROM pg_catalog.pg_attribute AS a
              LEFT JOIN pg_catalog.pg_attrdef AS d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
           (SELECT pg_catalog.string_agg(i.inhparent::pg_catalog.regclass::text, ', '
                       ORDER BY i.inhparent::pg_catalog.regclass::text)
              FROM pg_catalog.pg_inherits AS i WHERE i.inhrelid = c.oid),
           (SELECT pg_catalog.string_agg(pg_catalog.pg_get_indexdef(x.indexrelid), ', '
                       ORDER BY pg_catalog.pg_get_indexdef(x.indexrelid))
              FROM pg_catalog.pg_index AS x WHERE x.indrelid = c.oid AND x.indisvalid))
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname NOT LIKE 'pg\\_%' AND n.nspname NOT IN ('information_schema', 'stillpoint')
   AND c.relkind IN ('r', 'p', 'm', 'v', 'S')";

impl DatabaseState {
    /// Reads the database. Nobody else may be changing it.
    #[track_caller]
    #[must_use]
    pub fn read(session: &mut Session) -> Self {
        let mut relations = BTreeMap::new();
        for row in session.rows(RELATIONS) {
            let [name, kind, definition] = row.try_into().expect("the query has three columns");
            let name = name.expect("a relation has a name");
            if name == BARRIER {
                continue;
            }
            let (content, rows) = match kind.as_deref() {
                Some("r") => {
                    let digest = table_digest(session, &format!("ONLY {name}"));
                    (digest.to_string(), Some(digest.rows))
                }
                Some("m") => (table_digest(session, &name).to_string(), None),
                Some("S") => {
                    (session.text(&format!("SELECT (last_value, is_called) FROM {name}")), None)
                }
                _ => (String::new(), None),
            };
            let definition = definition.unwrap_or_default();
            relations.insert(name, RelationState { definition, content, rows });
        }
        Self { relations }
    }

    /// Only these relations, or all for an empty list.
    #[must_use]
    pub fn restricted_to(mut self, names: &[&str]) -> Self {
        if !names.is_empty() {
            self.relations.retain(|name, _| names.contains(&name.as_str()));
        }
        self
    }

    /// The same with this table empty.
    #[track_caller]
    pub fn empty(&mut self, table: &str) {
        let relation = self.relations.get_mut(table).expect("the table is in the state");
        relation.rows = Some(0);
        relation.content = "0 rows, checksum 0".to_owned();
    }

    /// Names of the tables with their numbers of rows.
    pub fn tables(&self) -> impl Iterator<Item = (&str, i64)> {
        self.relations.iter().filter_map(|(name, relation)| Some((name.as_str(), relation.rows?)))
    }

    /// What differs, one relation a line; empty for equal states.
    #[must_use]
    pub fn difference(&self, other: &Self) -> String {
        let mut text = String::new();
        let names: std::collections::BTreeSet<_> =
            self.relations.keys().chain(other.relations.keys()).collect();
        for name in names {
            let (one, two) = (self.relations.get(name), other.relations.get(name));
            if one != two {
                let _ = writeln!(text, "{name}\n  expected {one:?}\n  found    {two:?}");
            }
        }
        text
    }
}
