//! Snapshots that stay valid while they are used.

use std::thread;

use super::pg_sys;

/// Whether all statements of the current transaction see the same snapshot
/// (`IsolationUsesXactSnapshot()` in xact.h).
pub fn transaction_keeps_its_snapshot() -> bool {
    // SAFETY: a variable of the backend, which has one thread.
    let level = unsafe { pg_sys::XactIsoLevel };
    level >= pg_sys::XACT_REPEATABLE_READ as i32
}

/// `FirstCommandId` in c.h.
const FIRST_COMMAND: pg_sys::CommandId = 0;

/// A snapshot, registered if it is one of a moment.
#[derive(Debug)]
pub struct Snapshot {
    raw: pg_sys::Snapshot,
    is_registered: bool,
}

impl Snapshot {
    /// The snapshot of the transaction, with the transaction's own changes until now. Below
    /// REPEATABLE READ this is a new one at each call.
    pub fn of_transaction() -> Self {
        // SAFETY: the caller of a SQL function is in a transaction.
        Self::register(unsafe { pg_sys::GetTransactionSnapshot() })
    }

    /// What has committed by the time that a row is looked at, with the transaction's own changes.
    /// It is no moment, and leaves no trace: a SERIALIZABLE transaction that reads under it
    /// cannot fail by it (`SerializationNeededForRead()` in predicate.c).
    pub fn of_each_row() -> Self {
        Self { raw: &raw mut pg_sys::SnapshotSelfData, is_registered: false }
    }

    /// What has committed until now, with the transaction's own changes until now. The server
    /// refuses it in a parallel query.
    pub fn latest() -> Self {
        // SAFETY: as above.
        Self::register(unsafe { pg_sys::GetLatestSnapshot() })
    }

    /// What has committed until now, twice: without this transaction's own changes, and with
    /// them. It is one instant, so that the two differ in nothing but those.
    pub fn latest_without_and_with_own_changes() -> (Self, Self) {
        // SAFETY: the caller is in a transaction. The first snapshot of one is that of the
        // transaction, which must not be changed; every later one is a copy when registered.
        unsafe {
            let mut latest = pg_sys::GetLatestSnapshot();
            if (*latest).copied {
                latest = pg_sys::GetLatestSnapshot();
            }
            let (without, with) = (Self::register(latest), Self::register(latest));
            // What a command of this number would see: HeapTupleSatisfiesMVCC() compares.
            (*without.raw).curcid = FIRST_COMMAND;
            (*with.raw).curcid = pg_sys::GetCurrentCommandId(false);
            (without, with)
        }
    }

    /// The oldest transaction that this snapshot may not see, by its full number.
    pub fn horizon(&self) -> u64 {
        // SAFETY: a registered snapshot is valid.
        super::transaction::full_xid(unsafe { (*self.raw).xmin }.into_inner())
    }

    /// What it sees: all transactions below the first number, none from the second one on, and of
    /// those between them none of these. By full numbers, ascending; subtransactions are not among
    /// them, nor is the transaction itself. Not to be asked in recovery, where a snapshot keeps them
    /// otherwise.
    pub fn limits(&self) -> (u64, u64, Vec<u64>) {
        use super::transaction::full_xid;
        // SAFETY: a registered snapshot is valid, and has as many numbers as it says.
        let (lower, upper, running) = unsafe {
            let snapshot = &*self.raw;
            let count = usize::try_from(snapshot.xcnt).unwrap_or(0);
            let running = match count {
                0 => &[],
                _ => std::slice::from_raw_parts(snapshot.xip, count),
            };
            (snapshot.xmin, snapshot.xmax, running)
        };
        let mut running: Vec<u64> = running.iter().map(|xid| full_xid(xid.into_inner())).collect();
        running.sort_unstable();
        (full_xid(lower.into_inner()), full_xid(upper.into_inner()), running)
    }

    fn register(snapshot: pg_sys::Snapshot) -> Self {
        // SAFETY: the server has just given the snapshot. Registering copies what the next call
        // for a snapshot would overwrite, and counts what is the transaction's.
        Self { raw: unsafe { pg_sys::RegisterSnapshot(snapshot) }, is_registered: true }
    }

    pub(super) fn as_raw(&self) -> pg_sys::Snapshot {
        self.raw
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if self.is_registered && !thread::panicking() {
            // SAFETY: registered once, by us, for the resource owner that is still current.
            unsafe { pg_sys::UnregisterSnapshot(self.raw) };
        }
    }
}
