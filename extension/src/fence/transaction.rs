//! The current transaction: its number, its end, and the callbacks at both.

use std::ffi::CStr;

use super::error::Caught;
use super::{Failure, Statement, error, pg_sys};

/// How a transaction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has committed.
    Committed,
    /// It was prepared: another session will end it.
    Prepared,
    /// It was rolled back.
    Aborted,
}

/// What is called at the end of every transaction.
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    /// It is about to commit, or to be prepared, and can still write and fail.
    pub ending: fn() -> Result<(), Failure>,
    /// It has ended; nothing may fail.
    pub ended: fn(End),
}

static mut LISTENER: Option<Listener> = None;

/// Calls `listener` at the end of every transaction of this backend. To be called once, by
/// `_PG_init`.
pub(super) fn listen(listener: Listener) {
    // SAFETY: the library is loaded once, by the one thread of the server.
    unsafe {
        LISTENER = Some(listener);
        pg_sys::RegisterXactCallback(Some(on_event), super::relation::none());
    }
}

/// Called by the server (`CallXactCallbacks()` in xact.c).
unsafe extern "C-unwind" fn on_event(event: pg_sys::XactEvent::Type, _: *mut core::ffi::c_void) {
    use pg_sys::XactEvent as X;
    let work = |listener: Listener| {
        match event {
            X::XACT_EVENT_PRE_COMMIT | X::XACT_EVENT_PRE_PREPARE => {
                if let Err(report) = (listener.ending)() {
                    error::raise(*report);
                }
            }
            X::XACT_EVENT_COMMIT => (listener.ended)(End::Committed),
            X::XACT_EVENT_PREPARE => (listener.ended)(End::Prepared),
            X::XACT_EVENT_ABORT => (listener.ended)(End::Aborted),
            // Those of parallel workers: they change no catalog.
            _ => {}
        }
    };
    // SAFETY: the server calls back, and this frame holds nothing that an error would jump over.
    unsafe {
        if let Some(listener) = LISTENER {
            pg_sys::panic::pgrx_extern_c_guard(|| work(listener));
        }
    }
}

/// The number of the current top-level transaction, if it has one: without, it has changed
/// nothing.
pub fn xid_if_any() -> Option<u64> {
    // SAFETY: reads a variable of the backend.
    let xid = unsafe { pg_sys::GetTopFullTransactionIdIfAny() }.value;
    (xid as u32 != 0).then_some(xid)
}

/// The number of the current top-level transaction, which gets one if it has none.
pub fn xid() -> u64 {
    // SAFETY: the caller is in a transaction that may write.
    unsafe { pg_sys::GetTopFullTransactionId() }.value
}

/// The number that the next transaction will get.
pub fn next_xid() -> u64 {
    // SAFETY: reads shared memory.
    unsafe { pg_sys::ReadNextFullTransactionId() }.value
}

/// The full number of a transaction that is not in the future and not more than two thousand
/// million ago (`widen_snapshot_xid()` in xid8funcs.c).
pub fn full_xid(xid: u32) -> u64 {
    let next = next_xid();
    let (epoch, next_xid) = (next >> 32, next as u32);
    let epoch = if xid > next_xid { epoch.saturating_sub(1) } else { epoch };
    epoch << 32 | u64::from(xid)
}

/// Makes this transaction's changes of the catalogs known to itself, those of its last command
/// included.
pub fn see_own_changes() {
    // SAFETY: the caller is in a transaction and not within a command.
    unsafe { pg_sys::CommandCounterIncrement() };
}

/// Whether this session may write: not in recovery, not while pg_upgrade copies catalogs, not in
/// a parallel query.
pub fn may_write() -> bool {
    // SAFETY: functions and variables of the backend.
    unsafe { !pg_sys::RecoveryInProgress() && !pg_sys::IsBinaryUpgrade && !in_parallel_mode() }
}

/// Refuses a command in a READ ONLY transaction and on a standby, in the server's words.
pub fn refuse_read_only(command: &CStr) {
    // SAFETY: the server reads the string.
    unsafe {
        pg_sys::PreventCommandIfReadOnly(command.as_ptr());
        pg_sys::PreventCommandDuringRecovery(command.as_ptr());
    }
}

/// Refuses a command that is not a statement of its own, in the server's words: its commit is to
/// be that of nothing else.
pub fn refuse_in_block(command: &CStr) {
    // SAFETY: the server reads the string.
    unsafe { pg_sys::PreventInTransactionBlock(true, command.as_ptr()) };
}

/// Lets the commit of this transaction wait for the disk, whatever `synchronous_commit` says.
pub fn commit_durably() {
    // SAFETY: sets a variable of the backend.
    unsafe { pg_sys::ForceSyncCommit() };
}

/// How far a standby has replayed the WAL (`pg_last_wal_replay_lsn()`).
pub fn replayed_to() -> u64 {
    // SAFETY: reads shared memory; the pointer may be null.
    unsafe { pg_sys::GetXLogReplayRecPtr(core::ptr::null_mut()) }
}

/// Whether the server is a standby, or recovers.
pub fn in_recovery() -> bool {
    // SAFETY: reads shared memory.
    unsafe { pg_sys::RecoveryInProgress() }
}

fn in_parallel_mode() -> bool {
    // SAFETY: reads a variable of the backend.
    unsafe { pg_sys::IsInParallelMode() }
}

/// Waits for a millisecond, in which the session may be told to stop what it does; it fails then.
pub fn pause() {
    const MICROSECONDS: core::ffi::c_long = 1000;
    // SAFETY: as CHECK_FOR_INTERRUPTS() does it. Outside a session nothing is pending.
    unsafe {
        pg_sys::pg_usleep(MICROSECONDS);
        if pg_sys::InterruptPending != 0 {
            pg_sys::ProcessInterrupts();
        }
    }
}

/// Where the next record of WAL will be (`pg_current_wal_insert_lsn()`).
pub fn wal_position() -> u64 {
    // SAFETY: reads shared memory. In recovery it would mean nothing.
    unsafe { pg_sys::GetXLogInsertRecPtr() }
}

/// Now, in microseconds since 2000-01-01 (`TimestampTz`).
pub fn now() -> i64 {
    // SAFETY: reads the clock.
    unsafe { pg_sys::GetCurrentTimestamp() }
}

/// Commits the transaction that the server has begun for a statement and begins another, as the
/// statements do themselves that have transactions of their own (`vacuum()` in vacuum.c). Where it
/// allocates is as before, and a snapshot is active if one was.
///
/// To be called before such a statement begins, or after it has ended.
pub fn commit_and_begin(_: OwnTransactions, durability: Durability) {
    // SAFETY: the hook of such a statement calls. The memory in which the statement lies is not the
    // transaction's. A portal that is running survives the commit, and knows its snapshot no more
    // (PreCommit_Portals()).
    unsafe {
        let memory = pg_sys::CurrentMemoryContext;
        let had_snapshot = pg_sys::ActiveSnapshotSet();
        if had_snapshot {
            pg_sys::PopActiveSnapshot();
        }
        if durability == Durability::Durable {
            pg_sys::ForceSyncCommit();
        }
        pg_sys::CommitTransactionCommand();
        pg_sys::StartTransactionCommand();
        if had_snapshot {
            if pg_sys::ActivePortal.is_null() {
                pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            } else {
                pg_sys::EnsurePortalSnapshotExists();
            }
        }
        pg_sys::MemoryContextSwitchTo(memory);
    }
}

/// Proof that the statement that runs has transactions of its own, so that a commit ends nobody
/// else's work.
#[derive(Clone, Copy, Debug)]
pub struct OwnTransactions(());

impl OwnTransactions {
    /// `None` where the server will refuse such a statement: within a block, a function, a string
    /// of several statements.
    #[must_use]
    pub fn of(statement: &Statement<'_>) -> Option<Self> {
        (!statement.is_in_block()).then_some(Self(()))
    }
}

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It does, whatever `synchronous_commit` says.
    Durable,
    /// As `synchronous_commit` says.
    AsSet,
}

/// Lets this transaction commit without waiting for the disk.
pub fn commit_need_not_be_durable() {
    // SAFETY: the server reads both strings; the setting is undone at the end of the
    // transaction.
    unsafe {
        pg_sys::set_config_option(
            c"synchronous_commit".as_ptr(),
            c"off".as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_LOCAL,
            true,
            0,
            false,
        );
    }
}

/// Runs `work`, and if it fails undoes what it has done and gives its error, so that the
/// transaction can go on.
pub fn attempt<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Caught> {
    // SAFETY: an internal subtransaction, ended here in either case; owner and memory are put
    // back as plpgsql does it (exec_stmt_block() in pl_exec.c).
    unsafe {
        let (memory, owner) = (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner);
        pg_sys::BeginInternalSubTransaction(core::ptr::null());
        pg_sys::MemoryContextSwitchTo(memory);
        let result = error::caught(work);
        match result {
            Ok(_) => pg_sys::ReleaseCurrentSubTransaction(),
            Err(_) => pg_sys::RollbackAndReleaseCurrentSubTransaction(),
        }
        pg_sys::MemoryContextSwitchTo(memory);
        pg_sys::CurrentResourceOwner = owner;
        result
    }
}
