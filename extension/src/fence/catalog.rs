//! What the ledger asks of the catalogs.
//!
//! Rows are read by the functions that the server itself uses for its catalogs, not by queries:
//! the caller's `search_path` and rights play no part, nothing is planned, and it works at the
//! end of a transaction.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;

use stillpoint_check::Oid;

use super::relation::{OpenRelation, equals, equals_any, fields};
use super::{Encoding, Snapshot, compat, datum, missing, pg_sys};

/// Where the bytes of a relation's main fork are, as it stands in their path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Storage {
    /// The database; 0 for a relation that all databases share.
    pub database: Oid,
    /// The tablespace; never 0.
    pub tablespace: Oid,
    /// The file's number (`pg_class.relfilenode`, or the relation mapper's).
    pub filenode: Oid,
}

/// A row of `pg_class`.
#[derive(Clone, Debug, Default)]
pub struct Relation {
    /// Its OID.
    pub oid: Oid,
    /// Its name, without its schema's.
    pub name: String,
    /// `relnamespace`.
    pub schema: Oid,
    /// `relkind`.
    pub kind: u8,
    /// `relpersistence`.
    pub persistence: u8,
    /// `relam`.
    pub access_method: Oid,
    /// `relowner`.
    pub owner: Oid,
    /// `reltoastrelid`, 0 if there is none.
    pub toast: Oid,
    /// `relisshared`.
    pub is_shared: bool,
    /// `relhassubclass`: whether anything may inherit from it. It may be true of one that has no
    /// children any more, and is never false of one that has.
    pub may_have_children: bool,
    /// `relfilenode`; 0 for a relation without storage of its own and for a mapped one.
    raw_filenode: Oid,
    /// `reltablespace`; 0 is the database's own.
    raw_tablespace: Oid,
}

impl Relation {
    /// Whether it belongs to one session and is gone with it.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        self.persistence == b't'
    }

    /// Whether it is a partitioned table or index, which has no storage and stands for others.
    #[must_use]
    pub const fn is_partitioned(&self) -> bool {
        matches!(self.kind, b'p' | b'I')
    }

    /// Whether it has a file (`RELKIND_HAS_STORAGE()` in pg_class.h).
    #[must_use]
    pub const fn has_storage(&self) -> bool {
        matches!(self.kind, b'r' | b'i' | b'S' | b't' | b'm')
    }

    /// Whether its rows lie in the server's own access method for tables.
    #[must_use]
    pub fn is_heap(&self) -> bool {
        matches!(self.kind, b'r' | b't' | b'm') && self.access_method == HEAP
    }

    /// Whether the relation mapper knows its file, and `pg_class` does not
    /// (`RelationIsMapped()` in rel.h).
    #[must_use]
    pub const fn is_mapped(&self) -> bool {
        self.has_storage() && self.raw_filenode == 0
    }

    /// Its tablespace; never 0.
    #[must_use]
    pub fn tablespace(&self) -> Oid {
        match self.raw_tablespace {
            0 => database_tablespace(),
            tablespace => tablespace,
        }
    }

    /// Where its bytes are by this row, or by the relation mapper as it is now. `None` if it has
    /// no storage.
    #[must_use]
    pub fn storage(&self) -> Option<Storage> {
        if !self.has_storage() {
            return None;
        }
        let filenode = match self.raw_filenode {
            0 => missing::mapped_filenode(self.oid, self.is_shared),
            filenode => filenode,
        };
        let database = if self.is_shared { 0 } else { database() };
        // The mapper does not know a relation that only its dropping has left without a file.
        (filenode != 0).then(|| Storage { database, tablespace: self.tablespace(), filenode })
    }

    fn read(tuple: pg_sys::HeapTuple, encoding: Encoding) -> Self {
        // SAFETY: the callers give rows of pg_class; its columns of fixed width stand first, and
        // a name ends with a zero byte within its bounds.
        unsafe {
            let row = &*fields::<pg_sys::FormData_pg_class>(tuple);
            Self {
                oid: row.oid.to_u32(),
                name: encoding.read(CStr::from_ptr(row.relname.data.as_ptr())),
                schema: row.relnamespace.to_u32(),
                kind: row.relkind as u8,
                persistence: row.relpersistence as u8,
                access_method: row.relam.to_u32(),
                owner: row.relowner.to_u32(),
                toast: row.reltoastrelid.to_u32(),
                is_shared: row.relisshared,
                may_have_children: row.relhassubclass,
                raw_filenode: row.relfilenode.to_u32(),
                raw_tablespace: row.reltablespace.to_u32(),
            }
        }
    }
}

/// The access method `heap` (`HEAP_TABLE_AM_OID` in pg_am.dat).
pub(super) const HEAP: Oid = 2;

/// The schema `pg_catalog` (`PG_CATALOG_NAMESPACE` in pg_namespace.dat).
pub const CATALOGS: Oid = 11;

/// The tablespace `pg_global`, in which no database has files of its own (`GLOBALTABLESPACE_OID` in
/// pg_tablespace.dat).
pub const SHARED_TABLESPACE: Oid = 1664;

// The bindings know nothing of pg_inherits: the catalog, its column inhparent, and the index on that
// (pg_inherits.h).
const INHERITS: Oid = 2611;
const INHERITS_PARENT: u32 = 2;
const INHERITS_BY_PARENT: Oid = 2187;

/// The index of `pg_class` on its OID.
const CLASSES_BY_OID: Oid = pg_sys::ClassOidIndexId;

/// Whether a relation is one of those that initdb makes (`FirstNormalObjectId` in transam.h): no
/// other is mapped.
#[must_use]
pub const fn is_made_by_initdb(relation: Oid) -> bool {
    const FIRST_NORMAL: Oid = 16384;
    relation < FIRST_NORMAL
}

/// The database of this session.
pub fn database() -> Oid {
    // SAFETY: a variable of the backend, set once when it connects.
    unsafe { pg_sys::MyDatabaseId }.to_u32()
}

fn database_tablespace() -> Oid {
    // SAFETY: as above.
    unsafe { pg_sys::MyDatabaseTableSpace }.to_u32()
}

/// A relation as it is now, with this transaction's changes, out of the backend's cache.
///
/// Only to be asked for what is likely to be there: of what is not, the cache keeps for ever that
/// it is not.
pub fn relation(oid: Oid) -> Option<Relation> {
    // SAFETY: the cache hands out a row of pg_class, which is valid until it is released; after
    // an error the resource owner releases it.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(
            pg_sys::SysCacheIdentifier::RELOID as i32,
            pg_sys::Datum::from(oid),
        );
        if tuple.is_null() {
            return None;
        }
        let relation = Relation::read(tuple, Encoding::of_database());
        pg_sys::ReleaseSysCache(tuple);
        Some(relation)
    }
}

/// A relation as some snapshot sees it.
#[derive(Debug)]
pub struct SeenRelation {
    /// Its row.
    pub relation: Relation,
    /// Whether any transaction may have changed the row since.
    pub is_touched: bool,
}

/// The catalogs of relations, open for reading.
#[derive(Debug)]
pub struct Catalog {
    classes: OpenRelation,
    /// Opened when it is asked for.
    indexes: OnceCell<OpenRelation>,
    encoding: Encoding,
}

impl Catalog {
    /// Opens them.
    #[must_use]
    pub fn open() -> Self {
        Self {
            classes: OpenRelation::open_for_a_moment(pg_sys::RelationRelationId.to_u32()),
            indexes: OnceCell::new(),
            encoding: Encoding::of_database(),
        }
    }

    /// A relation as `snapshot` sees it.
    #[must_use]
    pub fn relation(&self, relation: Oid, snapshot: &Snapshot) -> Option<Relation> {
        self.relations_of(&[relation], snapshot).remove(&relation).map(|seen| seen.relation)
    }

    /// Those of the relations that `snapshot` sees, as it sees them.
    #[must_use]
    pub fn relations_of(
        &self,
        relations: &[Oid],
        snapshot: &Snapshot,
    ) -> BTreeMap<Oid, SeenRelation> {
        /// An index is asked for so many at a time.
        const AT_A_TIME: usize = 1000;

        let mut found = BTreeMap::new();
        let mut read = |tuple| {
            let relation = Relation::read(tuple, self.encoding);
            // SAFETY: a row has a header.
            let marks = unsafe { (*(*tuple).t_data).t_infomask };
            let is_touched = u32::from(marks) & pg_sys::HEAP_XMAX_INVALID == 0;
            found.insert(relation.oid, SeenRelation { relation, is_touched });
        };
        // SAFETY: a variable of the server.
        let has_index = !unsafe { pg_sys::IgnoreSystemIndexes };
        for some in relations.chunks(if has_index { AT_A_TIME } else { 1 }) {
            let (column, function) = (pg_sys::Anum_pg_class_oid, pg_sys::F_OIDEQ);
            let key = match some {
                [one] => equals(column, function, (*one).into()),
                _ => equals_any(column, function, datum::oid_array(some)),
            };
            self.classes.scan(Some(CLASSES_BY_OID), &mut [key], Some(snapshot), &mut read);
        }
        found
    }

    /// All relations that `snapshot` sees, or that are there now, and that are `wanted`.
    #[must_use]
    pub fn relations(
        &self,
        snapshot: Option<&Snapshot>,
        wanted: impl Fn(&Relation) -> bool,
    ) -> Vec<Relation> {
        let mut found = Vec::new();
        self.classes.scan(None, &mut [], snapshot, |tuple| {
            let relation = Relation::read(tuple, self.encoding);
            if wanted(&relation) {
                found.push(relation);
            }
        });
        found
    }

    /// A relation and all that inherit from it or are its partitions now, each once. Nothing is
    /// locked, and nothing fails for what is dropped meanwhile, as `find_all_inheritors()` would.
    #[must_use]
    pub fn inheritors(&self, relation: &Relation) -> Vec<Oid> {
        let mut all = vec![relation.oid];
        if !relation.may_have_children {
            return all;
        }
        let inherits = OpenRelation::open_for_a_moment(INHERITS);
        let mut seen = BTreeSet::from([relation.oid]);
        let mut next = 0;
        while let Some(&parent) = all.get(next) {
            next += 1;
            let mut key = [equals(INHERITS_PARENT, pg_sys::F_OIDEQ, parent.into())];
            inherits.scan(Some(INHERITS_BY_PARENT), &mut key, None, |tuple| {
                // SAFETY: a row of pg_inherits, whose first column is the child.
                let child = unsafe { (*fields::<Inherits>(tuple)).child }.to_u32();
                if seen.insert(child) {
                    all.push(child);
                }
            });
        }
        all
    }

    /// The indexes of a table, as they are now.
    #[must_use]
    pub fn indexes(&self, table: Oid) -> Vec<Index> {
        let mut found = Vec::new();
        let mut key = [equals(pg_sys::Anum_pg_index_indrelid, pg_sys::F_OIDEQ, table.into())];
        let catalog = || OpenRelation::open_for_a_moment(pg_sys::IndexRelationId.to_u32());
        self.indexes.get_or_init(catalog).scan(
            Some(pg_sys::IndexIndrelidIndexId),
            &mut key,
            None,
            |tuple| {
                // SAFETY: a row of pg_index, whose columns of fixed width stand first.
                let row = unsafe { &*fields::<pg_sys::FormData_pg_index>(tuple) };
                found.push(Index { oid: row.indexrelid.to_u32(), clusters: row.indisclustered });
            },
        );
        found
    }
}

/// A row of `pg_inherits`, as far as it is of interest.
#[repr(C)]
struct Inherits {
    child: pg_sys::Oid,
}

/// A row of `pg_index`.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    /// The index.
    pub oid: Oid,
    /// Whether its table was last clustered by it.
    pub clusters: bool,
}

/// The directory of a database's files in a tablespace, relative to the data directory
/// (`GetDatabasePath()` in relpath.c).
pub fn directory(database: Oid, tablespace: Oid) -> String {
    // SAFETY: the server gives a string in the current memory context, which nothing uses after it
    // is freed.
    unsafe {
        let path = pg_sys::GetDatabasePath(database.into(), tablespace.into());
        let directory = CStr::from_ptr(path).to_string_lossy().into_owned();
        pg_sys::pfree(path.cast());
        directory
    }
}

/// The tablespace of that name; `None` if there is none.
pub fn tablespace_named(name: &CStr) -> Option<Oid> {
    // SAFETY: the server reads the name.
    let tablespace = unsafe { pg_sys::get_tablespace_oid(name.as_ptr(), true) };
    Some(tablespace.to_u32()).filter(|oid| *oid != 0)
}

/// The schema of that name; `None` if there is none.
pub fn schema_named(name: &CStr) -> Option<Oid> {
    // SAFETY: as above.
    let schema = unsafe { pg_sys::get_namespace_oid(name.as_ptr(), true) };
    Some(schema.to_u32()).filter(|oid| *oid != 0)
}

/// Whether the current user may run VACUUM on a relation: its owner, that of the database if it
/// is not shared, and since 17 whoever has the privilege MAINTAIN
/// (`vacuum_is_permitted_for_relation()` in vacuum.c, without its warning). False if the relation
/// is gone.
pub fn may_vacuum(oid: Oid, is_shared: bool) -> bool {
    relation(oid).is_some()
        && (compat::may_maintain(oid)
            || (!is_shared && compat::owns(pg_sys::DatabaseRelationId, database())))
}

/// Whether the current user may run REINDEX or CLUSTER on a relation: its owner, and since 17
/// whoever has the privilege MAINTAIN (`RangeVarCallbackMaintainsTable()` in tablecmds.c). False
/// if the relation is gone.
pub fn may_rebuild(oid: Oid) -> bool {
    relation(oid).is_some() && compat::may_maintain(oid)
}

/// Whether the current user may run REINDEX on a whole schema.
pub fn may_rebuild_schema(schema: Oid) -> bool {
    compat::may_maintain_all_of(pg_sys::NamespaceRelationId, schema)
}

/// Whether the current user may run REINDEX on this whole database.
pub fn may_rebuild_database() -> bool {
    compat::may_maintain_all_of(pg_sys::DatabaseRelationId, database())
}

/// The table of an index; `None` if that has been dropped.
pub fn table_of_index(index: Oid) -> Option<Oid> {
    // SAFETY: the server looks up what its cache knows.
    let table = unsafe { pg_sys::IndexGetRelation(index.into(), true) };
    Some(table.to_u32()).filter(|oid| *oid != 0)
}

/// Whether that is this database's name.
pub fn is_this_database(name: &CStr) -> bool {
    // SAFETY: the server reads the name.
    unsafe { pg_sys::get_database_oid(name.as_ptr(), true) }.to_u32() == database()
}

/// The catalog of extensions.
pub const EXTENSIONS: Oid = pg_sys::ExtensionRelationId.to_u32();

/// Whether there is an extension of that name.
pub fn has_extension(name: &CStr) -> bool {
    // SAFETY: the server reads the name.
    unsafe { pg_sys::get_extension_oid(name.as_ptr(), true) }.to_u32() != 0
}

/// The extension's table of that name: a member of the extension, whatever else bears its name.
///
/// `known` is what an earlier call has found. While a relation of that number bears the name it
/// is the one: numbers are not given again while a session lives that could know them.
pub fn member_table(extension: &CStr, table: &CStr, known: Oid) -> Option<Oid> {
    // SAFETY: the server reads the names and looks up what it knows by them.
    unsafe {
        // The schema has the extension's name: control file.
        let schema = pg_sys::get_namespace_oid(extension.as_ptr(), true);
        if schema == pg_sys::InvalidOid {
            return None;
        }
        let relation = pg_sys::get_relname_relid(table.as_ptr(), schema);
        if relation == pg_sys::InvalidOid {
            return None;
        }
        let is_member = relation.to_u32() == known || {
            let owner = pg_sys::getExtensionOfObject(pg_sys::RelationRelationId, relation);
            owner != pg_sys::InvalidOid
                && owner == pg_sys::get_extension_oid(extension.as_ptr(), true)
        };
        is_member.then(|| relation.to_u32())
    }
}
