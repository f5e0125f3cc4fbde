//! What definitions call by name.

use std::collections::HashMap;

use stillpoint_check::Oid;

use super::{Error, Session};

/// An object whose name stands in the text of other objects' definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedObject {
    /// The OID of its schema; 0 for what stands in none by itself.
    pub schema: Oid,
    /// Its name with that of its schema, or of what it is part of.
    pub name: String,
    /// Its name alone.
    own_name: String,
}

impl NamedObject {
    /// Whether definitions that name this one would name `other` by the same words, as long as
    /// its schema keeps its own name.
    #[must_use]
    pub fn is_named_like(&self, other: &Self) -> bool {
        (self.schema, &self.own_name) == (other.schema, &other.own_name)
    }
}

/// Objects by their kind, in words, their OID and, for the attributes of a type, number.
pub type NamedObjects = HashMap<(String, Oid, i32), NamedObject>;

/// The kind of those that a definition's text does not only name, but is made from.
pub const PARTITIONED_TABLE: &str = "partitioned table";

impl Session {
    /// Everything of the users' that the definition of a table can name, but tables themselves:
    /// these are compared for their rows.
    ///
    /// Types that a table or another type brings with it are called like that one.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn named_objects(&mut self) -> Result<NamedObjects, Error> {
        let rows = self
            .client
            .query(
                "SELECT o.kind::pg_catalog.text, o.oid, o.number::pg_catalog.int4, o.schema, \
                        pg_catalog.concat_ws('.', n.nspname, o.part_of, o.name), \
                        o.name::pg_catalog.text \
                   FROM (SELECT 'schema' AS kind, s.oid, 0 AS number, 0::pg_catalog.oid AS schema, \
                                NULL AS part_of, s.nspname AS name \
                           FROM pg_catalog.pg_namespace AS s \
                          UNION ALL \
                         SELECT 'type', t.oid, 0, t.typnamespace, NULL, t.typname \
                           FROM pg_catalog.pg_type AS t \
                           LEFT JOIN pg_catalog.pg_class AS r ON r.oid = t.typrelid \
                          WHERE (t.typrelid = 0 OR r.relkind = 'c') \
                            AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_type AS e \
                                             WHERE e.typarray = t.oid) \
                          UNION ALL \
                         SELECT 'attribute', a.attrelid, a.attnum, 0, r.relname, a.attname \
                           FROM pg_catalog.pg_class AS r \
                           JOIN pg_catalog.pg_attribute AS a \
                             ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped \
                          WHERE r.relkind = 'c' \
                          UNION ALL \
                         SELECT 'enum label', e.oid, 0, 0, t.typname, e.enumlabel \
                           FROM pg_catalog.pg_enum AS e \
                           JOIN pg_catalog.pg_type AS t ON t.oid = e.enumtypid \
                          UNION ALL \
                         SELECT 'function', f.oid, 0, f.pronamespace, NULL, f.proname \
                           FROM pg_catalog.pg_proc AS f \
                          UNION ALL \
                         SELECT 'operator', p.oid, 0, p.oprnamespace, NULL, p.oprname \
                           FROM pg_catalog.pg_operator AS p \
                          UNION ALL \
                         SELECT 'operator class', c.oid, 0, c.opcnamespace, NULL, c.opcname \
                           FROM pg_catalog.pg_opclass AS c \
                          UNION ALL \
                         SELECT 'collation', l.oid, 0, l.collnamespace, NULL, l.collname \
                           FROM pg_catalog.pg_collation AS l \
                          UNION ALL \
                         SELECT 'text search configuration', c.oid, 0, c.cfgnamespace, NULL, c.cfgname \
                           FROM pg_catalog.pg_ts_config AS c \
                          UNION ALL \
                         SELECT 'text search dictionary', d.oid, 0, d.dictnamespace, NULL, d.dictname \
                           FROM pg_catalog.pg_ts_dict AS d \
                          UNION ALL \
                         SELECT $1, c.oid, 0, c.relnamespace, NULL, c.relname \
                           FROM pg_catalog.pg_class AS c \
                          WHERE c.relkind = 'p' AND c.relpersistence <> 't') AS o \
                   LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = o.schema \
                  WHERE o.oid >= 16384 OR o.kind = 'schema'",
                &[&PARTITIONED_TABLE],
            )
            .map_err(Error::doing("look up what definitions name"))?;
        Ok(rows
            .iter()
            .map(|row| {
                let object =
                    NamedObject { schema: row.get(3), name: row.get(4), own_name: row.get(5) };
                ((row.get(0), row.get(1), row.get(2)), object)
            })
            .collect())
    }
}
