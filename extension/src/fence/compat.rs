//! What differs between server versions. Nothing else in the extension asks for one.

use super::pg_sys;

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
