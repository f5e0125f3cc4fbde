//! What differs between server versions. Nothing else in the extension asks for one.

use std::ffi::{CStr, c_char};

use stillpoint_check::Oid;

use super::{Snapshot, pg_sys, utility};

// The type `pg_lsn`; its OID has another name since 14.
#[cfg(feature = "pg13")]
pub(super) use pg_sys::LSNOID as PG_LSN;
#[cfg(not(feature = "pg13"))]
pub(super) use pg_sys::PG_LSNOID as PG_LSN;

/// The hook (`ProcessUtility_hook` in utility.c), which has these arguments.
macro_rules! hook {
    ($planned:ident, $context:ident; $($argument:ident: $type:ty),*) => {
        unsafe extern "C-unwind" {
            // Not through the bindings: they would catch the statement's errors.
            #[link_name = "standard_ProcessUtility"]
            fn raw_standard_process_utility($($argument: $type),*);
        }

        #[allow(clippy::too_many_arguments)]
        pub(super) unsafe extern "C-unwind" fn on_utility($($argument: $type),*) {
            // SAFETY: the server calls; this frame has nothing to drop, so that an error of the
            // statement may jump over it.
            unsafe {
                let passing = utility::before($planned, $context);
                match utility::next() {
                    Some(next) => next($($argument),*),
                    None => raw_standard_process_utility($($argument),*),
                }
                utility::after(passing);
            }
        }
    };
}

#[cfg(feature = "pg13")]
hook!(planned, context;
    planned: *mut pg_sys::PlannedStmt,
    query: *const c_char,
    context: pg_sys::ProcessUtilityContext::Type,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion);

// 14 has added an argument.
#[cfg(not(feature = "pg13"))]
hook!(planned, context;
    planned: *mut pg_sys::PlannedStmt,
    query: *const c_char,
    read_only_tree: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion);

/// What may stand between the parentheses of VACUUM (`ExecVacuum()` in vacuum.c). A minor version
/// adds nothing to it.
pub(super) const VACUUM_OPTIONS: &[&CStr] = &[
    c"verbose",
    c"skip_locked",
    c"analyze",
    c"freeze",
    c"full",
    c"disable_page_skipping",
    c"index_cleanup",
    c"truncate",
    c"parallel",
    #[cfg(not(feature = "pg13"))]
    c"process_toast",
    #[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15")))]
    c"buffer_usage_limit",
    #[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15")))]
    c"process_main",
    #[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15")))]
    c"skip_database_stats",
    #[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15")))]
    c"only_database_stats",
];

/// Whether REINDEX says CONCURRENTLY. 14 made it one option of several.
///
/// # Safety
///
/// The statement is as the parser makes it.
pub(super) unsafe fn reindexes_concurrently(statement: &pg_sys::ReindexStmt) -> bool {
    #[cfg(feature = "pg13")]
    return statement.concurrent;
    #[cfg(not(feature = "pg13"))]
    // SAFETY: the caller's promise.
    unsafe {
        super::list::pointers::<pg_sys::DefElem>(statement.params).any(|option| {
            CStr::from_ptr((*option).defname) == c"concurrently" && super::statement::is_on(option)
        })
    }
}

/// Whether a form of ALTER TABLE is SET ACCESS METHOD, which is there since 15.
pub(super) const fn sets_access_method(form: pg_sys::AlterTableType::Type) -> bool {
    #[cfg(any(feature = "pg13", feature = "pg14"))]
    {
        let _ = form;
        false
    }
    #[cfg(not(any(feature = "pg13", feature = "pg14")))]
    {
        form == pg_sys::AlterTableType::AT_SetAccessMethod
    }
}

/// Whether VACUUM of a table covers the tables that inherit from it, unless it says ONLY
/// (`expand_vacuum_rel()`).
pub const VACUUM_COVERS_CHILDREN: bool = cfg!(feature = "pg18");

/// Whether CLUSTER works on partitioned tables.
pub const CLUSTER_COVERS_PARTITIONS: bool = cfg!(not(any(feature = "pg13", feature = "pg14")));

/// Whether REINDEX works on partitioned tables and indexes.
pub const REINDEX_COVERS_PARTITIONS: bool = cfg!(not(feature = "pg13"));

/// Whether REINDEX DATABASE rebuilds the catalogs' indexes, too. Since 16 it does not
/// (`ReindexMultipleTables()`).
pub const REINDEX_DATABASE_COVERS_CATALOGS: bool =
    cfg!(any(feature = "pg13", feature = "pg14", feature = "pg15"));

/// Whether the current user may maintain a relation that is known to be there: its owner, and
/// since 17 whoever has the privilege.
pub(super) fn may_maintain(relation: Oid) -> bool {
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    // SAFETY: may raise, through the boundary, for a relation that is gone.
    return unsafe {
        pg_sys::pg_class_aclcheck(
            relation.into(),
            pg_sys::GetUserId(),
            pg_sys::ACL_MAINTAIN as pg_sys::AclMode,
        ) == pg_sys::AclResult::ACLCHECK_OK
    };
    #[cfg(not(any(feature = "pg17", feature = "pg18")))]
    return owns(pg_sys::RelationRelationId, relation);
}

/// Whether the current user may maintain all of a schema or database
/// (`ReindexMultipleTables()` in indexcmds.c): its owner, and since 17 a member of pg_maintain.
pub(super) fn may_maintain_all_of(class: pg_sys::Oid, object: Oid) -> bool {
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    // SAFETY: the server looks up what its caches know of two roles.
    if unsafe {
        pg_sys::has_privs_of_role(pg_sys::GetUserId(), pg_sys::Oid::from(pg_sys::ROLE_PG_MAINTAIN))
    } {
        return true;
    }
    owns(class, object)
}

/// Whether the current user owns a relation, schema or database. 16 has one function for all.
pub(super) fn owns(class: pg_sys::Oid, object: Oid) -> bool {
    // SAFETY: may raise, through the boundary, for an object that is gone.
    unsafe {
        let user = pg_sys::GetUserId();
        #[cfg(any(feature = "pg13", feature = "pg14", feature = "pg15"))]
        return match class {
            pg_sys::RelationRelationId => pg_sys::pg_class_ownercheck(object.into(), user),
            pg_sys::NamespaceRelationId => pg_sys::pg_namespace_ownercheck(object.into(), user),
            _ => pg_sys::pg_database_ownercheck(object.into(), user),
        };
        #[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15")))]
        return pg_sys::object_ownercheck(class, object.into(), user);
    }
}

/// Whether the current user may look up names in a schema.
pub(super) fn may_use_schema(schema: pg_sys::Oid) -> bool {
    // SAFETY: may raise, through the boundary, for a schema that is gone.
    let answer = unsafe {
        let (user, usage) = (pg_sys::GetUserId(), pg_sys::ACL_USAGE as pg_sys::AclMode);
        #[cfg(any(feature = "pg13", feature = "pg14", feature = "pg15"))]
        {
            pg_sys::pg_namespace_aclcheck(schema, user, usage)
        }
        #[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15")))]
        {
            pg_sys::object_aclcheck(pg_sys::NamespaceRelationId, schema, user, usage)
        }
    };
    answer == pg_sys::AclResult::ACLCHECK_OK
}

/// Fetches the row at `tuple.t_self` if the snapshot sees it, and gives the buffer that it lies in,
/// pinned (`heap_fetch()` in heapam.c). 15 has added the argument `keep_buf`.
///
/// # Safety
///
/// The relation is open, the place one of its own.
pub(super) unsafe fn heap_fetch(
    relation: pg_sys::Relation,
    snapshot: &Snapshot,
    tuple: pg_sys::HeapTuple,
) -> Option<pg_sys::Buffer> {
    let mut buffer = pg_sys::InvalidBuffer as pg_sys::Buffer;
    // SAFETY: the caller's promise.
    let found = unsafe {
        #[cfg(any(feature = "pg13", feature = "pg14"))]
        {
            pg_sys::heap_fetch(relation, snapshot.as_raw(), tuple, &raw mut buffer)
        }
        #[cfg(not(any(feature = "pg13", feature = "pg14")))]
        {
            pg_sys::heap_fetch(relation, snapshot.as_raw(), tuple, &raw mut buffer, false)
        }
    };
    found.then_some(buffer)
}

/// Inserts into an index (`index_insert()` in indexam.c). 14 has added the argument
/// `indexUnchanged`. The index asks for uniqueness where it is unique.
///
/// # Safety
///
/// Both relations are open, the values those of a row at that place.
pub(super) unsafe fn index_insert(
    index: pg_sys::Relation,
    values: *mut pg_sys::Datum,
    nulls: *mut bool,
    place: pg_sys::ItemPointer,
    heap: pg_sys::Relation,
    info: *mut pg_sys::IndexInfo,
) {
    use pg_sys::IndexUniqueCheck::{UNIQUE_CHECK_NO, UNIQUE_CHECK_YES};
    // SAFETY: the caller's promise.
    unsafe {
        let unique =
            if (*(*index).rd_index).indisunique { UNIQUE_CHECK_YES } else { UNIQUE_CHECK_NO };
        #[cfg(feature = "pg13")]
        pg_sys::index_insert(index, values, nulls, place, heap, unique, info);
        #[cfg(not(feature = "pg13"))]
        pg_sys::index_insert(index, values, nulls, place, heap, unique, false, info);
    }
}

/// Makes every setting of that prefix that is not defined by now an unknown one. Before 15 this
/// only warns of those that are set already.
pub(super) fn reserve_setting_prefix(prefix: &CStr) {
    // SAFETY: the server copies the prefix.
    unsafe {
        #[cfg(any(feature = "pg13", feature = "pg14"))]
        pg_sys::EmitWarningsOnPlaceholders(prefix.as_ptr());
        #[cfg(not(any(feature = "pg13", feature = "pg14")))]
        pg_sys::MarkGUCPrefixReserved(prefix.as_ptr());
    }
}

/// Whether a setting lets the server remove rows that a snapshot may still ask for. 17 has no
/// such setting any more.
pub fn old_snapshots_may_fail() -> bool {
    #[cfg(any(feature = "pg13", feature = "pg14", feature = "pg15", feature = "pg16"))]
    // SAFETY: a variable of the server.
    return unsafe { pg_sys::old_snapshot_threshold } >= 0;
    #[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15", feature = "pg16")))]
    return false;
}

/// Whether this backend holds a lock of any mode on what `tag` names.
pub(super) fn holds_any_lock(tag: &pg_sys::LOCKTAG) -> bool {
    // 17 gave LockHeldByMe() an argument that makes it accept stronger modes. Before, it knows
    // only the one asked for.
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    // SAFETY: the function reads the tag and this backend's own lock table.
    return unsafe { pg_sys::LockHeldByMe(tag, pg_sys::AccessShareLock as pg_sys::LOCKMODE, true) };

    #[cfg(not(any(feature = "pg17", feature = "pg18")))]
    return (pg_sys::AccessShareLock..=pg_sys::AccessExclusiveLock).any(|mode| {
        // SAFETY: as above.
        unsafe { pg_sys::LockHeldByMe(tag, mode as pg_sys::LOCKMODE) }
    });
}
