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

/// A lock that marks work as going on: held by the session over several transactions, and let go
/// by the server itself when one of them fails or the session ends (`ProcReleaseLocks()` in
/// proc.c releases session-level locks of the default method when a transaction aborts).
///
/// It is on an object that is none, so that nobody else asks for it; in `pg_locks` it stands
/// with the OIDs of database and table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The table that says what the work is.
    pub table: Oid,
    /// What tells this work from another.
    pub number: u32,
}

impl Marker {
    // SET_LOCKTAG_OBJECT() in lock.h.
    fn tag(self) -> pg_sys::LOCKTAG {
        pg_sys::LOCKTAG {
            locktag_field1: super::catalog::database(),
            locktag_field2: self.table,
            locktag_field3: self.number,
            locktag_field4: 0,
            locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
            locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
        }
    }

    /// Takes it for the session, at once or not at all; gives whether it was had.
    pub fn take_for_session(self) -> bool {
        self.take(true)
    }

    /// Takes it until the transaction ends, at once or not at all; gives whether it was had.
    pub fn take_for_transaction(self) -> bool {
        self.take(false)
    }

    fn take(self, for_session: bool) -> bool {
        // SAFETY: the server copies the tag.
        let result = unsafe {
            pg_sys::LockAcquire(&self.tag(), MODE as pg_sys::LOCKMODE, for_session, true)
        };
        result != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    }

    /// Lets go of it. The session must hold it.
    pub fn let_go(self) {
        // SAFETY: as above; what is not held is a warning.
        unsafe { pg_sys::LockRelease(&self.tag(), MODE as pg_sys::LOCKMODE, true) };
    }
}

const MODE: u32 = pg_sys::ExclusiveLock;
