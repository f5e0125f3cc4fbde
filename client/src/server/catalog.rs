//! What is to be dumped, read from the catalogs under the snapshot.

use std::collections::{HashMap, HashSet};

use stillpoint_check::Oid;

use super::{Error, Session};
use crate::pattern::Pattern;
use crate::quote::{quote_literal, quote_qualified};

/// What a pattern matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedRelation {
    /// Which pattern, counted from 0.
    pub pattern: usize,
    /// The relation.
    pub relation: Oid,
    /// `pg_class.relkind`.
    pub kind: char,
    /// Whether it belongs to an extension, which creates it.
    pub is_member: bool,
}

/// The user's words, resolved to OIDs.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only these relations (`-t`); `None`: no such option.
    pub relations: Option<Vec<Oid>>,
    /// Not these (`-T`).
    pub without_relations: Vec<Oid>,
    /// Only these schemas (`-n`); `None`: no such option.
    pub schemas: Option<Vec<Oid>>,
    /// Not these (`-N`).
    pub without_schemas: Vec<Oid>,
}

/// A relation that belongs to the dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationRow {
    /// Its OID.
    pub relation: Oid,
    /// Its schema's name.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// `pg_class.relkind`: `r`, `p` or (an extension's configuration) `S`.
    pub kind: char,
    /// Size of the main fork in blocks, as the catalog estimates it.
    pub pages: u32,
    /// Columns that COPY is to give, in order: not dropped, not generated.
    pub columns: Vec<String>,
    /// For a configuration table of an extension: the extension, and the condition (`WHERE
    /// ...`, or empty) that tells the user's rows from the extension's own.
    pub configuration: Option<(Oid, String)>,
    /// The owner's name.
    pub owner: String,
}

impl RelationRow {
    /// The relation's name with its schema, quoted.
    #[must_use]
    pub fn quoted(&self) -> String {
        quote_qualified(&self.schema, &self.name)
    }
}

/// What a sequence would have to be set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceValue {
    /// The sequence's OID.
    pub relation: Oid,
    /// `last_value`.
    pub last_value: i64,
    /// `is_called`.
    pub is_called: bool,
}

impl Session {
    /// Relations of every kind that `pg_dump -t` can name, but no temporary ones, by pattern. A
    /// pattern without a schema means what `search_path` shows: the first schema of the path
    /// that has the name.
    ///
    /// # Errors
    ///
    /// A pattern that is no regular expression, besides a lost connection.
    pub fn match_relations(
        &mut self,
        patterns: &[Pattern],
        search_path: &[String],
    ) -> Result<Vec<MatchedRelation>, Error> {
        if patterns.is_empty() {
            return Ok(Vec::new());
        }
        let schemas: Vec<Option<&str>> =
            patterns.iter().map(|pattern| pattern.schema.as_deref()).collect();
        let names: Vec<&str> = patterns.iter().map(|pattern| pattern.name.as_str()).collect();
        let exact: Vec<Option<&str>> =
            patterns.iter().map(|pattern| pattern.exact.as_deref()).collect();
        let rows = self
            .client
            .query(
                "SELECT w.ordinality - 1, c.oid, c.relkind::pg_catalog.text, \
                        EXISTS (SELECT 1 FROM pg_catalog.pg_depend AS d \
                                 WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                                   AND d.objid = c.oid AND d.objsubid = 0 \
                                   AND d.deptype = 'e') \
                   FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), \
                                   pg_catalog.unnest($2::pg_catalog.text[]), \
                                   pg_catalog.unnest($4::pg_catalog.text[])) \
                        WITH ORDINALITY AS w (schema_pattern, name_pattern, exact, ordinality) \
                   JOIN pg_catalog.pg_class AS c \
                     ON CASE WHEN w.exact IS NOT NULL \
                             THEN c.relname::pg_catalog.text = w.exact \
                             ELSE c.relname ~ w.name_pattern COLLATE pg_catalog.\"default\" \
                        END \
                   JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
                  WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') \
                    AND c.relpersistence <> 't' \
                    AND CASE WHEN w.schema_pattern IS NOT NULL \
                             THEN n.nspname ~ w.schema_pattern COLLATE pg_catalog.\"default\" \
                             ELSE n.nspname = ANY ($3::pg_catalog.text[]) \
                                  AND NOT EXISTS ( \
                                      SELECT 1 \
                                        FROM pg_catalog.pg_class AS c2 \
                                        JOIN pg_catalog.pg_namespace AS n2 \
                                          ON n2.oid = c2.relnamespace \
                                       WHERE c2.relname = c.relname \
                                         AND pg_catalog.array_position( \
                                                 $3::pg_catalog.text[], n2.nspname::text) \
                                             < pg_catalog.array_position( \
                                                 $3::pg_catalog.text[], n.nspname::text)) \
                        END",
                &[&schemas, &names, &search_path, &exact],
            )
            .map_err(Error::doing("find the relations that match the patterns"))?;
        Ok(rows
            .iter()
            .map(|row| MatchedRelation {
                pattern: usize::try_from(row.get::<_, i64>(0)).unwrap_or_default(),
                relation: row.get(1),
                kind: first_char(row.get(2)),
                is_member: row.get(3),
            })
            .collect())
    }

    /// Schemas by pattern: which pattern (counted from 0), and the schema's OID.
    ///
    /// # Errors
    ///
    /// As [`match_relations`](Self::match_relations).
    pub fn match_schemas(&mut self, patterns: &[Pattern]) -> Result<Vec<(usize, Oid)>, Error> {
        if patterns.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = patterns.iter().map(|pattern| pattern.name.as_str()).collect();
        let rows = self
            .client
            .query(
                "SELECT w.ordinality - 1, n.oid \
                   FROM pg_catalog.unnest($1::pg_catalog.text[]) \
                        WITH ORDINALITY AS w (name_pattern, ordinality) \
                   JOIN pg_catalog.pg_namespace AS n \
                     ON n.nspname ~ w.name_pattern COLLATE pg_catalog.\"default\"",
                &[&names],
            )
            .map_err(Error::doing("find the schemas that match the patterns"))?;
        Ok(rows
            .iter()
            .map(|row| (usize::try_from(row.get::<_, i64>(0)).unwrap_or_default(), row.get(1)))
            .collect())
    }

    /// Everything below the given relations in `pg_inherits`, with schema and name.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn descendants(&mut self, relations: &[Oid]) -> Result<Vec<(Oid, String, String)>, Error> {
        if relations.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self
            .client
            .query(
                "WITH RECURSIVE below (relation) AS ( \
                     SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i \
                      WHERE i.inhparent = ANY ($1) \
                      UNION \
                     SELECT i.inhrelid FROM below AS b \
                       JOIN pg_catalog.pg_inherits AS i ON i.inhparent = b.relation) \
                 SELECT c.oid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text \
                   FROM below AS b \
                   JOIN pg_catalog.pg_class AS c ON c.oid = b.relation \
                   JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
                  WHERE c.relkind IN ('r', 'p', 'f') \
                  ORDER BY c.oid",
                &[&relations],
            )
            .map_err(Error::doing("find the partitions"))?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect())
    }

    /// The tables of the dump by `pg_dump`'s rules: what was asked for, or everything outside
    /// the system's schemas; no members of extensions, but the configuration tables of those
    /// extensions that the dump creates, or of a schema that was asked for and is not itself a
    /// member of an extension.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn wanted_relations(&mut self, wanted: &Wanted) -> Result<Vec<RelationRow>, Error> {
        let rows = self
            .client
            .query(
                "WITH contained AS ( \
                     SELECT n.oid, \
                            CASE WHEN $1::pg_catalog.oid[] IS NOT NULL THEN false \
                                 WHEN $3::pg_catalog.oid[] IS NOT NULL THEN n.oid = ANY ($3) \
                                 ELSE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' \
                            END AND n.oid <> ALL ($4::pg_catalog.oid[]) AS whole, \
                            EXISTS (SELECT 1 FROM pg_catalog.pg_depend AS m \
                                     WHERE m.classid = 'pg_catalog.pg_namespace'::pg_catalog.regclass \
                                       AND m.objid = n.oid AND m.deptype = 'e') AS extensions_own \
                       FROM pg_catalog.pg_namespace AS n), \
                 configuration AS ( \
                     SELECT e.oid AS extension, u.relation, u.condition \
                       FROM pg_catalog.pg_extension AS e, \
                            ROWS FROM (pg_catalog.unnest(e.extconfig), \
                                       pg_catalog.unnest(e.extcondition)) \
                            AS u (relation, condition)) \
                 SELECT c.oid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text, \
                        c.relkind::pg_catalog.text, c.relpages, \
                        ARRAY(SELECT a.attname::pg_catalog.text \
                                FROM pg_catalog.pg_attribute AS a \
                               WHERE a.attrelid = c.oid AND a.attnum > 0 \
                                 AND NOT a.attisdropped AND a.attgenerated = '' \
                               ORDER BY a.attnum), \
                        f.extension, f.condition, r.rolname::pg_catalog.text \
                   FROM pg_catalog.pg_class AS c \
                   JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
                   JOIN contained AS t ON t.oid = n.oid \
                   LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = c.relowner \
                   LEFT JOIN configuration AS f ON f.relation = c.oid \
                   LEFT JOIN pg_catalog.pg_depend AS d \
                     ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                    AND d.objid = c.oid AND d.objsubid = 0 AND d.deptype = 'e' \
                  WHERE c.relpersistence <> 't' \
                    AND c.oid <> ALL ($2::pg_catalog.oid[]) \
                    AND CASE \
                        WHEN d.objid IS NULL \
                        THEN c.relkind IN ('r', 'p') AND (t.whole OR c.oid = ANY ($1)) \
                        WHEN f.relation IS NULL THEN false \
                        ELSE c.relkind IN ('r', 'S') AND n.oid <> ALL ($4::pg_catalog.oid[]) \
                             AND (t.whole AND NOT t.extensions_own OR c.oid = ANY ($1) \
                                  OR ($1 IS NULL AND $3::pg_catalog.oid[] IS NULL)) \
                        END \
                  ORDER BY c.oid",
                &[
                    &wanted.relations,
                    &wanted.without_relations,
                    &wanted.schemas,
                    &wanted.without_schemas,
                ],
            )
            .map_err(Error::doing("list the relations of the dump"))?;
        Ok(rows
            .iter()
            .map(|row| RelationRow {
                relation: row.get(0),
                schema: row.get(1),
                name: row.get(2),
                kind: first_char(row.get(3)),
                pages: u32::try_from(row.get::<_, i32>(4)).unwrap_or_default(),
                columns: row.get(5),
                configuration: row
                    .get::<_, Option<Oid>>(6)
                    .map(|extension| (extension, row.get::<_, Option<_>>(7).unwrap_or_default())),
                owner: row.get::<_, Option<_>>(8).unwrap_or_default(),
            })
            .collect())
    }

    /// The unlogged tables and sequences of the database.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn unlogged_relations(&mut self) -> Result<HashSet<Oid>, Error> {
        let rows = self
            .client
            .query(
                "SELECT c.oid FROM pg_catalog.pg_class AS c \
                  WHERE c.relpersistence = 'u' AND c.relkind IN ('r', 'S')",
                &[],
            )
            .map_err(Error::doing("look for unlogged relations"))?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Which of the given relations refer to which others by foreign keys.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn references(&mut self, relations: &[Oid]) -> Result<HashMap<Oid, Vec<Oid>>, Error> {
        if relations.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = self
            .client
            .query(
                "SELECT f.conrelid, pg_catalog.array_agg(DISTINCT f.confrelid) \
                   FROM pg_catalog.pg_constraint AS f \
                  WHERE f.contype = 'f' AND f.conrelid = ANY ($1) \
                    AND f.confrelid = ANY ($1) AND f.confrelid <> f.conrelid \
                  GROUP BY f.conrelid",
                &[&relations],
            )
            .map_err(Error::doing("look up foreign keys"))?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Reads sequences by their quoted names, all or none as with [`lock`](Self::lock); the
    /// reading itself locks them (ACCESS SHARE) until the transaction ends.
    ///
    /// # Errors
    ///
    /// The first sequence that cannot be read.
    pub fn sequence_values(
        &mut self,
        sequences: &[(Oid, &str)],
    ) -> Result<Vec<SequenceValue>, Error> {
        if sequences.is_empty() {
            return Ok(Vec::new());
        }
        let query = sequences
            .iter()
            .map(|(oid, name)| {
                format!("SELECT {oid}::pg_catalog.oid, last_value, is_called FROM {name}")
            })
            .collect::<Vec<_>>()
            .join(" UNION ALL ");
        self.savepoint()?;
        match self.client.query(&query, &[]).map_err(Error::doing("read a sequence")) {
            Ok(rows) => {
                self.release_savepoint()?;
                Ok(rows
                    .iter()
                    .map(|row| SequenceValue {
                        relation: row.get(0),
                        last_value: row.get(1),
                        is_called: row.get(2),
                    })
                    .collect())
            }
            Err(error) => {
                self.undo_to_savepoint();
                Err(error)
            }
        }
    }

    /// Which of the given materialized views hold rows (`relispopulated`), and what each reads
    /// that is a materialized view too, directly or through views.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn populated_views(&mut self, views: &[Oid]) -> Result<HashMap<Oid, Vec<Oid>>, Error> {
        if views.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = self
            .client
            .query(
                "WITH RECURSIVE reads (view, relation, kind) AS ( \
                     SELECT v.oid, v.oid, 'v'::pg_catalog.\"char\" \
                       FROM pg_catalog.pg_class AS v WHERE v.oid = ANY ($1) \
                      UNION \
                     SELECT s.view, c.oid, c.relkind \
                       FROM reads AS s \
                       JOIN pg_catalog.pg_rewrite AS w ON w.ev_class = s.relation \
                       JOIN pg_catalog.pg_depend AS d \
                         ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass \
                        AND d.objid = w.oid \
                        AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                       JOIN pg_catalog.pg_class AS c \
                         ON c.oid = d.refobjid AND c.oid <> w.ev_class \
                      WHERE s.kind = 'v' AND c.relkind IN ('v', 'm')) \
                 SELECT v.oid, \
                        ARRAY(SELECT s.relation FROM reads AS s \
                               WHERE s.view = v.oid AND s.kind = 'm' ORDER BY 1) \
                   FROM pg_catalog.pg_class AS v \
                  WHERE v.oid = ANY ($1) AND v.relispopulated",
                &[&views],
            )
            .map_err(Error::doing("look at the materialized views"))?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Schema and name of relations, as this session's snapshot has them.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn relation_names(
        &mut self,
        relations: &[Oid],
    ) -> Result<HashMap<Oid, (String, String)>, Error> {
        if relations.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = self
            .client
            .query(
                "SELECT c.oid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text \
                   FROM pg_catalog.pg_class AS c \
                   JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
                  WHERE c.oid = ANY ($1)",
                &[&relations],
            )
            .map_err(Error::doing("look up the names of relations"))?;
        Ok(rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect())
    }

    /// A digest of the catalogs that hold definitions, under the snapshot that this session now
    /// has: two that differ prove that DDL has committed between their snapshots. Storage
    /// numbers and statistics change no row version here that matters, so VACUUM and ANALYZE
    /// do not disturb it.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn catalog_digest(&mut self) -> Result<String, Error> {
        const CATALOGS: [&str; 24] = [
            "pg_am",
            "pg_attrdef",
            "pg_cast",
            "pg_class",
            "pg_collation",
            "pg_constraint",
            "pg_enum",
            "pg_event_trigger",
            "pg_extension",
            "pg_index",
            "pg_inherits",
            "pg_namespace",
            "pg_opclass",
            "pg_operator",
            "pg_partitioned_table",
            "pg_policy",
            "pg_proc",
            "pg_publication",
            "pg_rewrite",
            "pg_statistic_ext",
            "pg_trigger",
            "pg_ts_config",
            "pg_ts_dict",
            "pg_type",
        ];
        let parts: Vec<String> = CATALOGS
            .iter()
            .map(|catalog| {
                // The address of a row version and its inserting transaction: any change of a
                // definition writes a new version.
                format!(
                    "SELECT {} AS catalog, pg_catalog.count(*) AS rows, \
                            pg_catalog.sum(pg_catalog.hashtext( \
                                t.ctid::pg_catalog.text || t.xmin::pg_catalog.text)) AS hash \
                       FROM pg_catalog.{catalog} AS t",
                    quote_literal(catalog)
                )
            })
            .collect();
        let query = format!(
            "SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', catalog, rows, hash), ', ' \
                                          ORDER BY catalog) FROM ({}) AS digest",
            parts.join(" UNION ALL ")
        );
        let row = self
            .client
            .query_one(&query, &[])
            .map_err(Error::doing("look for DDL in the catalogs"))?;
        Ok(row.get(0))
    }
}

fn first_char(kind: &str) -> char {
    kind.chars().next().unwrap_or_default()
}
