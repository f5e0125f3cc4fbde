//! Which file every relation has, as `pg_class` and the relation mapper say.

use std::collections::BTreeMap;

use postgres::types::Oid;

use crate::Session;

/// Which relations are looked at, with their indexes and TOAST tables.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// All that users have made. Not the extension's own, which change while they record.
    Users,
    /// Those of one schema.
    Schema(&'a str),
    /// The system catalogs.
    Catalogs,
}

const OUR_OWN: &str = "(SELECT o.oid FROM pg_catalog.pg_namespace AS o \
                         WHERE o.nspname = 'stillpoint')";

impl Scope<'_> {
    /// The condition on the relation `c` whose TOAST parts count as relations of `namespace`.
    fn relations(self) -> String {
        match self {
            Self::Users => format!("c.oid >= 16384 AND namespace IS DISTINCT FROM {OUR_OWN}"),
            Self::Schema(name) => format!(
                "namespace = (SELECT n.oid FROM pg_catalog.pg_namespace AS n \
                               WHERE n.nspname = '{name}')"
            ),
            Self::Catalogs => "c.oid < 16384".to_owned(),
        }
    }

    /// The condition on the ledger's rows. A schema's cannot be told from others after a drop:
    /// whoever asks for one knows the relations.
    pub(super) fn entries(self) -> String {
        match self {
            Self::Users => format!(
                "relation >= 16384 AND NOT EXISTS (SELECT FROM ({}) AS own \
                                                    WHERE own.oid = relation)",
                relations(&format!("namespace = {OUR_OWN}"))
            ),
            Self::Schema(_) => "relation >= 16384".to_owned(),
            Self::Catalogs => "relation < 16384".to_owned(),
        }
    }
}

/// A relation that has a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// `pg_class.relname`.
    pub name: String,
    /// The name, or for a TOAST table and its index whose they are.
    pub label: String,
    /// `pg_class.relkind`.
    pub kind: String,
    /// 0 for a shared relation.
    pub database: Oid,
    /// Never 0.
    pub tablespace: Oid,
    /// Of mapped relations, too.
    pub filenode: Oid,
}

/// The files of all relations in a scope but temporary ones, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    relations: BTreeMap<Oid, Relation>,
}

/// A query of the relations with files; `condition` is on `c` and `namespace`.
fn relations(condition: &str) -> String {
    // pg_relation_filenode() reads the catalog as it is now and not the query's snapshot; here
    // nobody changes anything meanwhile.
    format!(
        "SELECT c.oid, c.relname, \
                CASE WHEN c.relkind = 't' THEN 'toast of ' || o.relname \
                     WHEN o.oid IS NOT NULL THEN 'toast index of ' || o.relname \
                     ELSE c.relname END AS label, \
                c.relkind, \
                CASE WHEN c.relisshared THEN 0 ELSE d.oid END AS database, \
                COALESCE(NULLIF(c.reltablespace, 0), d.dattablespace) AS tablespace, \
                pg_catalog.pg_relation_filenode(c.oid) AS filenode \
           FROM pg_catalog.pg_class AS c \
           JOIN pg_catalog.pg_database AS d ON d.datname = pg_catalog.current_database() \
           LEFT JOIN pg_catalog.pg_index AS i ON i.indexrelid = c.oid \
           LEFT JOIN pg_catalog.pg_class AS o \
             ON o.reltoastrelid <> 0 \
            AND o.reltoastrelid = CASE WHEN c.relkind = 't' THEN c.oid ELSE i.indrelid END \
          CROSS JOIN LATERAL (SELECT COALESCE(o.relnamespace, c.relnamespace) AS namespace) AS n \
          WHERE c.relkind IN ('r', 'i', 'S', 't', 'm') AND c.relpersistence <> 't' \
            AND {condition}"
    )
}

impl Storage {
    /// The files of the relations in `scope` now.
    #[track_caller]
    #[must_use]
    pub fn read(session: &mut Session, scope: Scope) -> Self {
        let rows = session.rows(&relations(&scope.relations()));
        let relations = rows.into_iter().map(|row| {
            let [oid, name, label, kind, database, tablespace, filenode] =
                <[_; 7]>::try_from(row).expect("seven columns were asked for");
            let number = |value: Option<String>| -> Oid {
                value.and_then(|text| text.parse().ok()).expect("a relation with a file")
            };
            let relation = Relation {
                name: name.expect("a relation has a name"),
                label: label.expect("a relation has a name"),
                kind: kind.expect("a relation has a kind"),
                database: number(database),
                tablespace: number(tablespace),
                filenode: number(filenode),
            };
            (number(oid), relation)
        });
        Self { relations: relations.collect() }
    }

    #[cfg(test)]
    pub(super) fn of(relations: impl IntoIterator<Item = (Oid, Relation)>) -> Self {
        Self { relations: relations.into_iter().collect() }
    }

    /// A relation by its OID.
    #[must_use]
    pub fn get(&self, oid: Oid) -> Option<&Relation> {
        self.relations.get(&oid)
    }

    /// All relations with their OIDs.
    pub fn iter(&self) -> impl Iterator<Item = (Oid, &Relation)> {
        self.relations.iter().map(|(oid, relation)| (*oid, relation))
    }

    /// The relation with this label.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[track_caller]
    #[must_use]
    pub fn labelled(&self, label: &str) -> (Oid, &Relation) {
        let found = self.iter().find(|(_, relation)| relation.label == label);
        found.unwrap_or_else(|| panic!("there is no {label:?} in {self:#?}"))
    }

    /// Whether any relation has this name.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        self.relations.values().any(|relation| relation.name == name)
    }

    /// Whether any relation has this file.
    #[must_use]
    pub fn has_file(&self, tablespace: Oid, filenode: Oid) -> bool {
        self.relations
            .values()
            .any(|relation| (relation.tablespace, relation.filenode) == (tablespace, filenode))
    }
}
