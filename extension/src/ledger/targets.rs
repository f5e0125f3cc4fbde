//! What a statement is going to replace or work on.

use std::collections::BTreeSet;

use stillpoint_check::Oid;

use super::record::Effect;
use crate::fence::catalog::{
    self, CATALOGS, Catalog, Relation, Storage, may_rebuild, may_rebuild_database,
    may_rebuild_schema, may_vacuum, table_of_index,
};
use crate::fence::statement::{AlterForm, MoveAll, Named, ReindexScope, Vacuum, Work};
use crate::fence::{
    CLUSTER_COVERS_PARTITIONS, REINDEX_COVERS_PARTITIONS, REINDEX_DATABASE_COVERS_CATALOGS,
    VACUUM_COVERS_CHILDREN,
};
use crate::settings;

/// A file that a statement is going to replace or work on.
#[derive(Debug)]
pub struct Target {
    /// The relation that has it.
    pub relation: Relation,
    /// The file.
    pub storage: Storage,
    /// What will have happened to it if the statement ends well and does not replace it.
    pub effect: Effect,
    /// The table of which it is an index or the TOAST table, if the statement is about that one.
    pub part_of: Option<Oid>,
}

/// Whether a statement has transactions of its own, so that its record cannot be one of them.
pub fn has_own_transactions(work: &Work) -> bool {
    let is_partitioned =
        |oid: Oid| catalog::relation(oid).is_some_and(|relation| relation.is_partitioned());
    match work {
        Work::Vacuum(_) | Work::Cluster(None) => true,
        Work::Cluster(Some(table)) => CLUSTER_COVERS_PARTITIONS && is_partitioned(*table),
        Work::Reindex { concurrently: true, .. } => true,
        Work::Reindex { scope, .. } => match scope {
            ReindexScope::Index(relation) | ReindexScope::Table(relation) => {
                REINDEX_COVERS_PARTITIONS && is_partitioned(*relation)
            }
            ReindexScope::Schema(_) | ReindexScope::Database | ReindexScope::System => true,
            ReindexScope::Nothing => false,
        },
        _ => false,
    }
}

/// Whether a statement keeps every version of every row of the tables that it works on.
pub const fn keeps_rows(work: &Work) -> bool {
    match work {
        Work::Vacuum(vacuum) => vacuum.full,
        Work::Cluster(_) => true,
        _ => false,
    }
}

/// Whether a statement works on files in place, so that which files those are can be known for
/// certain only when it has ended.
pub const fn is_in_place(work: &Work) -> bool {
    matches!(work, Work::Vacuum(vacuum) if !vacuum.full)
}

/// The files that a statement is going to replace or work on, as far as they are there now and
/// the user may: each once.
pub fn targets(work: &Work) -> Vec<Target> {
    let mut targets =
        Targets { catalog: Catalog::open(), seen: BTreeSet::new(), found: Vec::new() };
    match work {
        Work::Vacuum(vacuum) => targets.vacuum(vacuum),
        Work::Cluster(table) => targets.cluster(*table),
        Work::Reindex { scope, concurrently } => targets.reindex(scope, *concurrently),
        Work::Truncate(named) => targets.truncate(named),
        Work::Refresh(view) => targets.whole(*view),
        Work::Alter(relation, forms) => targets.alter(*relation, forms),
        Work::MoveAll(move_all) => targets.move_all(move_all),
        Work::Unknown => {}
    }
    targets.found
}

struct Targets {
    catalog: Catalog,
    seen: BTreeSet<Oid>,
    found: Vec<Target>,
}

impl Targets {
    fn vacuum(&mut self, vacuum: &Vacuum) {
        if vacuum.skips_all {
            return;
        }
        let tables = if vacuum.whole_database {
            self.all(|relation| matches!(relation.kind, b'r' | b'm'))
        } else {
            let covers = |relation: &Relation, named: Named| {
                named.with_children && (VACUUM_COVERS_CHILDREN || relation.is_partitioned())
            };
            self.expanded(&vacuum.relations(), covers)
        };
        for table in tables {
            if !matches!(table.kind, b'r' | b'm' | b't') || !may_vacuum(table.oid, table.is_shared)
            {
                continue;
            }
            if vacuum.full {
                self.table(&table, !vacuum.skips_main, Effect::Announced);
            } else {
                self.cleaned(&table, vacuum);
            }
        }
    }

    /// What VACUUM without FULL works on.
    fn cleaned(&mut self, table: &Relation, vacuum: &Vacuum) {
        let only_moved_content = settings::records_rewrites_only();
        if !vacuum.skips_main {
            if !table.is_heap() {
                self.add(table, Effect::Compacted, None);
            } else if !only_moved_content {
                self.add(table, Effect::Pages, None);
            }
            if !only_moved_content {
                self.indexes(table.oid, Effect::Pages, Some(table.oid));
            }
        }
        if !vacuum.skips_toast && !only_moved_content {
            self.toast(table, Effect::Pages);
        }
    }

    fn cluster(&mut self, table: Option<Oid>) {
        let Some(table) = table else {
            for table in self.all(|relation| matches!(relation.kind, b'r' | b'm')) {
                let indexes = self.catalog.indexes(table.oid);
                if indexes.iter().any(|index| index.clusters) && may_rebuild(table.oid) {
                    self.table(&table, true, Effect::Announced);
                }
            }
            return;
        };
        for table in self.leaves(table, CLUSTER_COVERS_PARTITIONS) {
            if may_rebuild(table.oid) {
                self.table(&table, true, Effect::Announced);
            }
        }
    }

    fn reindex(&mut self, scope: &ReindexScope, concurrently: bool) {
        let is_table = |relation: &Relation| matches!(relation.kind, b'r' | b'm');
        let tables = match scope {
            ReindexScope::Index(index) => {
                for index in self.leaves(*index, REINDEX_COVERS_PARTITIONS) {
                    if table_of_index(index.oid).is_some_and(may_rebuild) {
                        self.add(&index, Effect::Announced, None);
                    }
                }
                return;
            }
            ReindexScope::Table(table) => {
                let mut tables = self.leaves(*table, REINDEX_COVERS_PARTITIONS);
                tables.retain(|table| may_rebuild(table.oid));
                tables
            }
            ReindexScope::Schema(schema) if may_rebuild_schema(*schema) => {
                self.all(|relation| is_table(relation) && relation.schema == *schema)
            }
            ReindexScope::Database if may_rebuild_database() => self.all(|relation| {
                is_table(relation)
                    && (REINDEX_DATABASE_COVERS_CATALOGS || relation.schema != CATALOGS)
            }),
            ReindexScope::System if may_rebuild_database() => {
                self.all(|relation| is_table(relation) && relation.schema == CATALOGS)
            }
            _ => return,
        };
        for table in tables {
            // Catalogs are never rebuilt beside their writers: left out, or refused. Who may
            // rebuild all of a schema or database may do so with each table but the shared ones.
            if (concurrently && table.schema == CATALOGS)
                || (table.is_shared && !may_rebuild(table.oid))
            {
                continue;
            }
            self.indexes(table.oid, Effect::Announced, None);
            self.indexes(table.toast, Effect::Announced, None);
        }
    }

    fn truncate(&mut self, named: &[Named]) {
        for relation in self.expanded(named, |_, named| named.with_children) {
            self.table(&relation, true, Effect::Announced);
        }
    }

    fn alter(&mut self, oid: Oid, forms: &[AlterForm]) {
        let Some(relation) = known(oid) else { return };
        for form in forms {
            match *form {
                AlterForm::Tablespace(tablespace) if tablespace != relation.tablespace() => {
                    self.moved(&relation);
                }
                AlterForm::Persistence(persistence) if persistence != relation.persistence => {
                    self.whole(oid);
                }
                AlterForm::AccessMethod(method) if method != Some(relation.access_method) => {
                    self.whole(oid);
                }
                _ => {}
            }
        }
    }

    fn move_all(&mut self, move_all: &MoveAll) {
        let moved = self.all(|relation| {
            move_all.kinds.contains(&relation.kind)
                && relation.tablespace() == move_all.tablespace
                && relation.schema != CATALOGS
                && (move_all.owners.is_empty() || move_all.owners.contains(&relation.owner))
        });
        for relation in moved {
            self.moved(&relation);
        }
    }

    /// A relation that goes to another tablespace: its TOAST goes with it, its indexes stay.
    fn moved(&mut self, relation: &Relation) {
        self.add(relation, Effect::Announced, None);
        self.toast(relation, Effect::Announced);
    }

    /// A relation with all that belongs to it.
    fn whole(&mut self, relation: Oid) {
        if let Some(relation) = known(relation) {
            self.table(&relation, true, Effect::Announced);
        }
    }

    fn table(&mut self, table: &Relation, with_main: bool, effect: Effect) {
        if with_main {
            self.add(table, effect, None);
            self.indexes(table.oid, effect, Some(table.oid));
        }
        self.toast(table, effect);
    }

    fn toast(&mut self, table: &Relation, effect: Effect) {
        if let Some(toast) = known(table.toast) {
            self.add(&toast, effect, Some(table.oid));
            self.indexes(toast.oid, effect, Some(table.oid));
        }
    }

    fn indexes(&mut self, table: Oid, effect: Effect, part_of: Option<Oid>) {
        if table == 0 {
            return;
        }
        for index in self.catalog.indexes(table) {
            if let Some(index) = known(index.oid) {
                self.add(&index, effect, part_of);
            }
        }
    }

    fn add(&mut self, relation: &Relation, effect: Effect, part_of: Option<Oid>) {
        if relation.is_temporary() || !self.seen.insert(relation.oid) {
            return;
        }
        if let Some(storage) = relation.storage() {
            self.found.push(Target { relation: relation.clone(), storage, effect, part_of });
        }
    }

    /// A relation, or in place of a partitioned one all that have storage below it, if the statement
    /// covers those.
    fn leaves(&self, relation: Oid, covers_partitions: bool) -> Vec<Relation> {
        let named = [Named { relation, with_children: true }];
        self.expanded(&named, |relation, _| covers_partitions && relation.is_partitioned())
    }

    /// The relations, and all that inherit from those for which `covers` is true; partitioned ones,
    /// which have no storage, left out.
    fn expanded(
        &self,
        named: &[Named],
        covers: impl Fn(&Relation, Named) -> bool,
    ) -> Vec<Relation> {
        let mut found = Vec::new();
        for named in named {
            let Some(relation) = known(named.relation) else { continue };
            if covers(&relation, *named) {
                found.extend(self.catalog.inheritors(&relation).into_iter().filter_map(known));
            } else {
                found.push(relation);
            }
        }
        found.retain(|relation| !relation.is_partitioned());
        found
    }

    fn all(&self, wanted: impl Fn(&Relation) -> bool) -> Vec<Relation> {
        self.catalog.relations(None, |relation| !relation.is_temporary() && wanted(relation))
    }
}

/// A relation as it is now; 0 is the number of none.
fn known(relation: Oid) -> Option<Relation> {
    if relation == 0 { None } else { catalog::relation(relation) }
}
