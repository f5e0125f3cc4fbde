//! Utility statements, as the parser gives them, read for what they do to storage.
//!
//! Names are looked up as the server will do it, and none is locked: what a name means may
//! change until the server has its lock. What is read here is what will be announced, not what
//! will be recorded as done.
//!
//! Nothing here fails because of what the user has written. What the server is going to refuse
//! means nothing to us, so that its own error comes, at its own place in the order.

use std::ffi::{CStr, CString, c_char};
use std::marker::PhantomData;

use stillpoint_check::Oid;

use super::{compat, error, list, pg_sys};

/// A statement that is about to run.
#[derive(Debug)]
pub struct Statement<'a> {
    node: *mut pg_sys::Node,
    top_level: bool,
    lives: PhantomData<&'a ()>,
}

/// A relation that a statement names.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Its OID.
    pub relation: Oid,
    /// Whether the relations that inherit from it are meant, too (no ONLY).
    pub with_children: bool,
}

/// What a statement does to the storage of relations.
#[derive(Debug)]
pub enum Work {
    /// VACUUM.
    Vacuum(Vacuum),
    /// CLUSTER of one relation, or of all that were clustered before.
    Cluster(Option<Oid>),
    /// REINDEX.
    Reindex {
        /// Of what.
        scope: ReindexScope,
        /// Whether it is done beside writers, in several transactions.
        concurrently: bool,
    },
    /// TRUNCATE.
    Truncate(Vec<Named>),
    /// REFRESH MATERIALIZED VIEW, unless it is done row by row.
    Refresh(Oid),
    /// Forms of ALTER TABLE, ALTER INDEX and so on that give a relation another file.
    Alter(Oid, Vec<AlterForm>),
    /// ALTER ... ALL IN TABLESPACE.
    MoveAll(MoveAll),
    /// Nothing that is known before it has happened.
    Unknown,
}

/// The options of VACUUM that matter here.
#[derive(Debug, Default)]
pub struct Vacuum {
    /// FULL: every table is written anew.
    pub full: bool,
    /// Whether only tables' TOAST is worked on (PROCESS_MAIN false).
    pub skips_main: bool,
    /// Whether tables' TOAST is left alone (PROCESS_TOAST false).
    pub skips_toast: bool,
    /// Whether nothing but statistics of the database is worked on.
    pub skips_all: bool,
    /// Whether no relation was named: all of the database are meant.
    pub whole_database: bool,
    /// Those that were named.
    names: Vec<Name>,
}

/// A relation's name as it stands in a statement, kept for longer than that: what it means is to be
/// asked again while the statement runs and when it has ended.
#[derive(Debug)]
enum Name {
    Oid(Oid),
    Text { schema: Option<CString>, name: CString, with_children: bool },
}

impl Vacuum {
    /// What the names mean now, those that mean anything.
    #[must_use]
    pub fn relations(&self) -> Vec<Named> {
        self.names.iter().filter_map(Name::named).collect()
    }
}

/// What REINDEX is to rebuild.
#[derive(Debug)]
pub enum ReindexScope {
    /// One index.
    Index(Oid),
    /// The indexes of a table.
    Table(Oid),
    /// Those of all tables of a schema.
    Schema(Oid),
    /// Those of all tables of the database but the catalogs.
    Database,
    /// Those of the catalogs.
    System,
    /// Of something that does not exist, or may not be named so: the server will refuse.
    Nothing,
}

/// A form of ALTER TABLE that is certain to give a relation another file, if it is not yet as
/// the form says.
#[derive(Clone, Copy, Debug)]
pub enum AlterForm {
    /// SET TABLESPACE; only the relation and its TOAST move.
    Tablespace(Oid),
    /// SET LOGGED (`p`) or SET UNLOGGED (`u`).
    Persistence(u8),
    /// SET ACCESS METHOD.
    AccessMethod(Option<Oid>),
}

/// What ALTER ... ALL IN TABLESPACE moves.
#[derive(Debug)]
pub struct MoveAll {
    /// From where.
    pub tablespace: Oid,
    /// What: kinds as in `pg_class.relkind`.
    pub kinds: &'static [u8],
    /// Only what these own, if any are named.
    pub owners: Vec<Oid>,
}

impl Statement<'_> {
    /// # Safety
    ///
    /// The node is a utility statement that outlives this.
    pub(super) unsafe fn new(node: *mut pg_sys::Node, top_level: bool) -> Self {
        Self { node, top_level, lives: PhantomData }
    }

    /// Whether it is VACUUM, CLUSTER or REINDEX, of which some forms have transactions of their own.
    pub fn is_maintenance(&self) -> bool {
        use pg_sys::NodeTag as T;
        // SAFETY: a node starts with its tag.
        let tag = unsafe { (*self.node).type_ };
        matches!(tag, T::T_VacuumStmt | T::T_ClusterStmt | T::T_ReindexStmt)
    }

    /// Its command tag, such as `TRUNCATE TABLE`.
    #[must_use]
    pub fn command(&self) -> String {
        // SAFETY: the node is a utility statement; tags are static strings.
        unsafe {
            let tag = pg_sys::GetCommandTagName(pg_sys::CreateCommandTag(self.node));
            CStr::from_ptr(tag).to_string_lossy().into_owned()
        }
    }

    /// Whether it stands within a transaction block, a function, or a string of several
    /// statements. There the server refuses what needs transactions of its own.
    #[must_use]
    pub fn is_in_block(&self) -> bool {
        // SAFETY: the server looks at the state of the transaction.
        unsafe { pg_sys::IsInTransactionBlock(self.top_level) }
    }

    /// What it does to storage.
    #[must_use]
    pub fn work(&self) -> Work {
        use pg_sys::NodeTag as T;
        // SAFETY: a node's tag says of which type it is.
        unsafe {
            match (*self.node).type_ {
                T::T_VacuumStmt => vacuum(&*self.node.cast()),
                T::T_ClusterStmt => cluster(&*self.node.cast()),
                T::T_ReindexStmt => reindex(&*self.node.cast()),
                T::T_TruncateStmt => {
                    let statement = &*self.node.cast::<pg_sys::TruncateStmt>();
                    Work::Truncate(
                        list::pointers(statement.relations).filter_map(|it| named(it)).collect(),
                    )
                }
                T::T_RefreshMatViewStmt => {
                    let statement = &*self.node.cast::<pg_sys::RefreshMatViewStmt>();
                    match named(statement.relation) {
                        Some(view) if !statement.concurrent => Work::Refresh(view.relation),
                        _ => Work::Unknown,
                    }
                }
                T::T_AlterTableStmt => alter(&*self.node.cast()),
                T::T_AlterTableMoveAllStmt => move_all(&*self.node.cast()),
                _ => Work::Unknown,
            }
        }
    }
}

/// # Safety
///
/// Of this and the functions below: the nodes are whole, as the parser makes them.
unsafe fn vacuum(statement: &pg_sys::VacuumStmt) -> Work {
    if !statement.is_vacuumcmd {
        return Work::Unknown;
    }
    let mut vacuum = Vacuum::default();
    // SAFETY: the caller's promise.
    unsafe {
        for option in list::pointers::<pg_sys::DefElem>(statement.options) {
            let name = CStr::from_ptr((*option).defname);
            if !compat::VACUUM_OPTIONS.contains(&name) {
                // The server will refuse it.
                return Work::Unknown;
            }
            match name.to_bytes() {
                b"full" => vacuum.full = is_on(option),
                b"process_main" => vacuum.skips_main = !is_on(option),
                b"process_toast" => vacuum.skips_toast = !is_on(option),
                b"only_database_stats" => vacuum.skips_all = is_on(option),
                _ => {}
            }
        }
        vacuum.whole_database = statement.rels.is_null();
        for relation in list::pointers::<pg_sys::VacuumRelation>(statement.rels) {
            vacuum.names.extend(if (*relation).oid == pg_sys::InvalidOid {
                name((*relation).relation)
            } else {
                Some(Name::Oid((*relation).oid.to_u32()))
            });
        }
    }
    Work::Vacuum(vacuum)
}

/// # Safety
///
/// As above.
unsafe fn cluster(statement: &pg_sys::ClusterStmt) -> Work {
    if statement.relation.is_null() {
        return Work::Cluster(None);
    }
    // SAFETY: as above.
    match unsafe { named(statement.relation) } {
        Some(table) => Work::Cluster(Some(table.relation)),
        None => Work::Unknown,
    }
}

/// # Safety
///
/// As above.
unsafe fn reindex(statement: &pg_sys::ReindexStmt) -> Work {
    use pg_sys::ReindexObjectType as K;
    // SAFETY: as above. REINDEX DATABASE and SYSTEM have no name since 16, if none is written.
    let scope = unsafe {
        let name = (!statement.name.is_null()).then(|| CStr::from_ptr(statement.name));
        let relation = named(statement.relation).map(|named| named.relation);
        let is_here = name.is_none_or(super::catalog::is_this_database);
        match statement.kind {
            K::REINDEX_OBJECT_INDEX => relation.map(ReindexScope::Index),
            K::REINDEX_OBJECT_TABLE => relation.map(ReindexScope::Table),
            K::REINDEX_OBJECT_SCHEMA => {
                name.and_then(super::catalog::schema_named).map(ReindexScope::Schema)
            }
            K::REINDEX_OBJECT_DATABASE => is_here.then_some(ReindexScope::Database),
            K::REINDEX_OBJECT_SYSTEM => is_here.then_some(ReindexScope::System),
            _ => None,
        }
    };
    // SAFETY: as above.
    let concurrently = unsafe { compat::reindexes_concurrently(statement) };
    Work::Reindex { scope: scope.unwrap_or(ReindexScope::Nothing), concurrently }
}

/// # Safety
///
/// As above.
unsafe fn alter(statement: &pg_sys::AlterTableStmt) -> Work {
    use pg_sys::AlterTableType as A;
    // SAFETY: as above.
    unsafe {
        let forms: Vec<_> = list::pointers::<pg_sys::AlterTableCmd>(statement.cmds)
            .filter_map(|command| match (*command).subtype {
                A::AT_SetTableSpace => {
                    super::catalog::tablespace_named(CStr::from_ptr((*command).name))
                        .map(AlterForm::Tablespace)
                }
                A::AT_SetLogged => Some(AlterForm::Persistence(b'p')),
                A::AT_SetUnLogged => Some(AlterForm::Persistence(b'u')),
                subtype if compat::sets_access_method(subtype) => {
                    Some(AlterForm::AccessMethod(access_method((*command).name)))
                }
                _ => None,
            })
            .collect();
        if forms.is_empty() {
            return Work::Unknown;
        }
        match named(statement.relation) {
            Some(named) => Work::Alter(named.relation, forms),
            None => Work::Unknown,
        }
    }
}

/// # Safety
///
/// As above.
unsafe fn move_all(statement: &pg_sys::AlterTableMoveAllStmt) -> Work {
    use pg_sys::ObjectType as O;
    let kinds: &[u8] = match statement.objtype {
        O::OBJECT_TABLE => b"r",
        O::OBJECT_INDEX => b"i",
        O::OBJECT_MATVIEW => b"m",
        _ => return Work::Unknown,
    };
    // SAFETY: as above.
    unsafe {
        let from = CStr::from_ptr(statement.orig_tablespacename);
        if CStr::from_ptr(statement.new_tablespacename) == from {
            return Work::Unknown;
        }
        let Some(tablespace) = super::catalog::tablespace_named(from) else {
            return Work::Unknown;
        };
        let owners = list::pointers::<pg_sys::RoleSpec>(statement.roles)
            .map(|role| pg_sys::get_rolespec_oid(role, true).to_u32())
            .collect();
        Work::MoveAll(MoveAll { tablespace, kinds, owners })
    }
}

/// The access method of that name, or the default one; `None` if there is none.
///
/// # Safety
///
/// The name is null or a string.
unsafe fn access_method(name: *const c_char) -> Option<Oid> {
    // SAFETY: the caller's promise; the setting is a string.
    let method = unsafe {
        let name = if name.is_null() { pg_sys::default_table_access_method } else { name };
        pg_sys::get_table_am_oid(name, true)
    };
    Some(method.to_u32()).filter(|oid| *oid != 0)
}

/// Whether an option is on, by the server's own rule. What it cannot read as a boolean it will
/// refuse, and means nothing here.
///
/// # Safety
///
/// The option is as the parser makes it.
pub(super) unsafe fn is_on(option: *mut pg_sys::DefElem) -> bool {
    // SAFETY: the caller's promise; the function holds nothing when it fails.
    error::caught(|| Ok(unsafe { pg_sys::defGetBoolean(option) })).unwrap_or(false)
}

/// The relation that a name means now; `None` if none, or none that the user may look up.
///
/// # Safety
///
/// The name is null or a node as the parser makes it.
unsafe fn named(node: *mut pg_sys::RangeVar) -> Option<Named> {
    // SAFETY: the caller's promise.
    unsafe { name(node) }?.named()
}

/// A copy of a name; `None` if it is in another database.
///
/// # Safety
///
/// As above.
unsafe fn name(node: *mut pg_sys::RangeVar) -> Option<Name> {
    if node.is_null() {
        return None;
    }
    // SAFETY: the caller's promise: all of them are strings, or null where they are not written.
    unsafe {
        let node = &*node;
        let is_elsewhere = !node.catalogname.is_null()
            && !super::catalog::is_this_database(CStr::from_ptr(node.catalogname));
        (!is_elsewhere).then(|| Name::Text {
            schema: (!node.schemaname.is_null())
                .then(|| CStr::from_ptr(node.schemaname).to_owned()),
            name: CStr::from_ptr(node.relname).to_owned(),
            with_children: node.inh,
        })
    }
}

impl Name {
    /// What it means now (`RangeVarGetRelidExtended()` in namespace.c, without its errors).
    fn named(&self) -> Option<Named> {
        let (schema, name, with_children) = match self {
            Self::Oid(relation) => {
                return Some(Named { relation: *relation, with_children: false });
            }
            Self::Text { schema, name, with_children } => (schema, name, *with_children),
        };
        // SAFETY: the server reads the strings.
        let relation = unsafe {
            match schema {
                None => pg_sys::RelnameGetRelid(name.as_ptr()),
                Some(schema) => {
                    let schema = pg_sys::LookupNamespaceNoError(schema.as_ptr());
                    if schema == pg_sys::InvalidOid || !compat::may_use_schema(schema) {
                        return None;
                    }
                    pg_sys::get_relname_relid(name.as_ptr(), schema)
                }
            }
        };
        (relation != pg_sys::InvalidOid)
            .then(|| Named { relation: relation.to_u32(), with_children })
    }
}
