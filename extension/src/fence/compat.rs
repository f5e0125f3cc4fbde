//! What differs between server versions. Nothing else in the extension asks for one.

use std::ffi::{CStr, c_char};

use stillpoint_check::Oid;

use super::{pg_sys, utility};

// The type `pg_lsn`; its OID has another name since 14.
#[cfg(feature = "pg13")]
pub(super) use pg_sys::LSNOID as PG_LSN;
#[cfg(not(feature = "pg13"))]
pub(super) use pg_sys::PG_LSNOID as PG_LSN;

unsafe extern "C-unwind" {
    // Not through the bindings: they would catch the statement's errors.
    #[cfg(feature = "pg13")]
    #[link_name = "standard_ProcessUtility"]
    fn raw_standard_process_utility(
        planned: *mut pg_sys::PlannedStmt,
        query: *const c_char,
        context: pg_sys::ProcessUtilityContext::Type,
        parameters: pg_sys::ParamListInfo,
        environment: *mut pg_sys::QueryEnvironment,
        receiver: *mut pg_sys::DestReceiver,
        completion: *mut pg_sys::QueryCompletion,
    );
    #[cfg(not(feature = "pg13"))]
    #[link_name = "standard_ProcessUtility"]
    fn raw_standard_process_utility(
        planned: *mut pg_sys::PlannedStmt,
        query: *const c_char,
        read_only_tree: bool,
        context: pg_sys::ProcessUtilityContext::Type,
        parameters: pg_sys::ParamListInfo,
        environment: *mut pg_sys::QueryEnvironment,
        receiver: *mut pg_sys::DestReceiver,
        completion: *mut pg_sys::QueryCompletion,
    );
}

/// The hook (`ProcessUtility_hook` in utility.c). 14 has added the argument `readOnlyTree`.
#[cfg(feature = "pg13")]
pub(super) unsafe extern "C-unwind" fn on_utility(
    planned: *mut pg_sys::PlannedStmt,
    query: *const c_char,
    context: pg_sys::ProcessUtilityContext::Type,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: the server calls; this frame has nothing to drop, so that an error of the
    // statement may jump over it.
    unsafe {
        let call = utility::before(planned, context);
        match utility::next() {
            Some(next) => {
                next(planned, query, context, parameters, environment, receiver, completion);
            }
            None => raw_standard_process_utility(
                planned,
                query,
                context,
                parameters,
                environment,
                receiver,
                completion,
            ),
        }
        if let Some(call) = call {
            utility::after(call);
        }
    }
}

/// The hook, see above.
#[cfg(not(feature = "pg13"))]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe extern "C-unwind" fn on_utility(
    planned: *mut pg_sys::PlannedStmt,
    query: *const c_char,
    read_only_tree: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: as above.
    unsafe {
        let call = utility::before(planned, context);
        match utility::next() {
            Some(next) => next(
                planned,
                query,
                read_only_tree,
                context,
                parameters,
                environment,
                receiver,
                completion,
            ),
            None => raw_standard_process_utility(
                planned,
                query,
                read_only_tree,
                context,
                parameters,
                environment,
                receiver,
                completion,
            ),
        }
        if let Some(call) = call {
            utility::after(call);
        }
    }
}

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
        pointers::<pg_sys::DefElem>(statement.params).any(|option| {
            CStr::from_ptr((*option).defname) == c"concurrently" && pg_sys::defGetBoolean(option)
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

/// Whether REINDEX DATABASE rebuilds the catalogs' indexes, too. Since 16 it does not
/// (`ReindexMultipleTables()`).
pub(super) const REINDEX_DATABASE_COVERS_CATALOGS: bool =
    cfg!(any(feature = "pg13", feature = "pg14", feature = "pg15"));

// What the bindings lack, because its headers are not among those they are made from. Calls
// pass the boundary by hand.
unsafe extern "C-unwind" {
    #[link_name = "find_all_inheritors"]
    fn raw_find_all_inheritors(
        parent: pg_sys::Oid,
        mode: pg_sys::LOCKMODE,
        parents: *mut *mut pg_sys::List,
    ) -> *mut pg_sys::List;

    // Renamed in 16.
    #[cfg_attr(
        any(feature = "pg13", feature = "pg14", feature = "pg15"),
        link_name = "RelationMapOidToFilenode"
    )]
    #[cfg_attr(
        not(any(feature = "pg13", feature = "pg14", feature = "pg15")),
        link_name = "RelationMapOidToFilenumber"
    )]
    fn raw_mapped_filenode(relation: pg_sys::Oid, shared: bool) -> pg_sys::Oid;
}

/// `find_all_inheritors()` in pg_inherits.c.
///
/// # Safety
///
/// As for any function of the bindings: in a transaction, on the backend's one thread.
pub(super) unsafe fn find_all_inheritors(
    parent: pg_sys::Oid,
    mode: pg_sys::LOCKMODE,
    parents: *mut *mut pg_sys::List,
) -> *mut pg_sys::List {
    // SAFETY: the caller's promise; nothing is held across the boundary.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| raw_find_all_inheritors(parent, mode, parents)) }
}

/// The file of a mapped relation, changes of this transaction included; 0 if the mapper knows
/// none (`RelationMapOidToFilenode()` in relmapper.c).
pub(super) fn mapped_filenode(relation: Oid, shared: bool) -> Oid {
    // SAFETY: the function reads the backend's copy of the map.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| raw_mapped_filenode(relation.into(), shared)) }
        .to_u32()
}

/// Whether the current user may run VACUUM and its like on a relation: its owner, that of the
/// database if it is not shared, and since 17 whoever has the privilege MAINTAIN
/// (`vacuum_is_permitted_for_relation()` in vacuum.c, without its warning).
pub(super) fn may_maintain(relation: Oid, shared: bool) -> bool {
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    // SAFETY: the functions look up what the caches know.
    let privileged = unsafe {
        pg_sys::pg_class_aclcheck(
            relation.into(),
            pg_sys::GetUserId(),
            pg_sys::ACL_MAINTAIN as pg_sys::AclMode,
        ) == pg_sys::AclResult::ACLCHECK_OK
    };
    #[cfg(not(any(feature = "pg17", feature = "pg18")))]
    let privileged = owns(pg_sys::RelationRelationId, relation);
    privileged || (!shared && owns(pg_sys::DatabaseRelationId, super::catalog::database()))
}

/// Whether the current user may run REINDEX on all of a schema or database
/// (`ReindexMultipleTables()` in indexcmds.c): its owner, and since 17 a member of pg_maintain.
pub(super) fn may_maintain_object(class: pg_sys::Oid, object: Oid) -> bool {
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    // SAFETY: the function looks up what the caches know.
    if unsafe {
        pg_sys::has_privs_of_role(pg_sys::GetUserId(), pg_sys::Oid::from(pg_sys::ROLE_PG_MAINTAIN))
    } {
        return true;
    }
    owns(class, object)
}

/// Whether the current user owns a relation, schema or database. 16 has one function for all.
fn owns(class: pg_sys::Oid, object: Oid) -> bool {
    // SAFETY: the functions look up what the caches know.
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

/// The elements of a list of pointers. A list is an array since 13.
///
/// # Safety
///
/// The list is null, which is an empty one, or a list of pointers to `T`, and stays as it is.
pub(super) unsafe fn pointers<T>(list: *mut pg_sys::List) -> impl Iterator<Item = *mut T> {
    // SAFETY: the caller's promise.
    unsafe { cells(list) }.map(|cell| unsafe { cell.ptr_value }.cast())
}

/// The elements of a list of OIDs.
///
/// # Safety
///
/// As above, of OIDs.
pub(super) unsafe fn oids(list: *mut pg_sys::List) -> impl Iterator<Item = Oid> {
    // SAFETY: the caller's promise.
    unsafe { cells(list) }.map(|cell| unsafe { cell.oid_value }.to_u32())
}

unsafe fn cells(list: *mut pg_sys::List) -> impl Iterator<Item = pg_sys::ListCell> {
    // SAFETY: as above; null has no elements.
    let length = if list.is_null() { 0 } else { unsafe { (*list).length } };
    // SAFETY: the list has that many.
    (0..usize::try_from(length).unwrap_or(0)).map(move |n| unsafe { *(*list).elements.add(n) })
}
