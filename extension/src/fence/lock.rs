//! Locks that the transaction holds.

use stillpoint_check::Oid;

use super::{compat, pg_sys};

/// Whether the current transaction holds a lock, of whatever mode, on a relation of this
/// database or on a shared one.
///
/// Answers from the backend's own lock table, which knows the locks taken by the fast path and
/// on a standby as well.
pub fn transaction_holds_lock_on(relation: Oid) -> bool {
    // SAFETY: the function compares the OID with those of the shared catalogs, the variable is
    // set once, when the backend connects to its database.
    let database = unsafe {
        if pg_sys::IsSharedRelation(relation.into()) { 0 } else { pg_sys::MyDatabaseId.to_u32() }
    };
    // SET_LOCKTAG_RELATION() in lock.h.
    compat::holds_any_lock(&pg_sys::LOCKTAG {
        locktag_field1: database,
        locktag_field2: relation,
        locktag_field3: 0,
        locktag_field4: 0,
        locktag_type: pg_sys::LockTagType::LOCKTAG_RELATION as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    })
}
