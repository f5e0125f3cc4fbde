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

/// A lock that marks something as going on.
///
/// It is on an object that is none, so that nobody else asks for it; in `pg_locks` it stands
/// with the OIDs of database and table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The table that says what it is.
    pub table: Oid,
    /// What tells this from others.
    pub number: u32,
    /// What becomes of it in a session when a transaction there fails.
    pub lifetime: Lifetime,
}

/// What becomes of a session's lock when one of its transactions fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// It ends: it marks a statement that has several transactions (`ProcReleaseLocks()` in
    /// proc.c releases session-level locks of the default method when a transaction aborts).
    Statement,
    /// It lasts until the session lets go of it or ends, as that of `pg_advisory_lock()`.
    Session,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Nobody else holds it.
    Alone,
    /// With others who hold it like this.
    Together,
    /// With others who hold it like this, and with nobody who holds it together.
    Against,
}

impl Hold {
    const fn mode(self) -> pg_sys::LOCKMODE {
        match self {
            Self::Alone => pg_sys::ExclusiveLock as pg_sys::LOCKMODE,
            Self::Together => pg_sys::ShareLock as pg_sys::LOCKMODE,
            Self::Against => pg_sys::RowExclusiveLock as pg_sys::LOCKMODE,
        }
    }
}

impl Marker {
    // SET_LOCKTAG_OBJECT() in lock.h.
    fn tag(self) -> pg_sys::LOCKTAG {
        let method = match self.lifetime {
            Lifetime::Statement => pg_sys::DEFAULT_LOCKMETHOD,
            Lifetime::Session => pg_sys::USER_LOCKMETHOD,
        };
        pg_sys::LOCKTAG {
            locktag_field1: super::catalog::database(),
            locktag_field2: self.table,
            locktag_field3: self.number,
            locktag_field4: 0,
            locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
            locktag_lockmethodid: method as u8,
        }
    }

    /// Takes it for the session, at once or not at all; gives whether it was had.
    pub fn take_for_session(self) -> bool {
        self.take(Hold::Alone, true, true)
    }

    /// Takes it until the transaction ends, at once or not at all; gives whether it was had.
    pub fn take_for_transaction(self, hold: Hold) -> bool {
        self.take(hold, false, true)
    }

    /// Takes it until the transaction ends, when those who are in the way have let go of it.
    pub fn wait_for_transaction(self, hold: Hold) {
        self.take(hold, false, false);
    }

    /// Takes it for the session, when those who are in the way have let go of it.
    pub fn wait_for_session(self, hold: Hold) {
        self.take(hold, true, false);
    }

    fn take(self, hold: Hold, for_session: bool, at_once: bool) -> bool {
        // SAFETY: the server copies the tag.
        let result = unsafe { pg_sys::LockAcquire(&self.tag(), hold.mode(), for_session, at_once) };
        result != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    }

    /// Whether this session holds it.
    pub fn is_held(self) -> bool {
        compat::holds_any_lock(&self.tag())
    }

    /// Lets go of it. The session must hold it so.
    pub fn let_go(self, hold: Hold) {
        // SAFETY: as above; what is not held is a warning.
        unsafe { pg_sys::LockRelease(&self.tag(), hold.mode(), true) };
    }
}
