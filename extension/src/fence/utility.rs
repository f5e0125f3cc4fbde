//! The hook that every utility statement passes.
//!
//! The server's own errors pass it untouched: with what it calls on to stands no frame of ours
//! that has anything to drop, and no handler that would read an error and raise a copy, which
//! knows neither the constraint's name nor the position in the query. Our own code runs before
//! and after that call, within a guard of its own.

use super::statement::Statement;
use super::{Failure, error, pg_sys};

/// What is called around utility statements.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// Whether there is anything to do for statements now.
    pub is_active: fn() -> bool,
    /// Before the statement runs. Gives whether `after` is to be called.
    pub before: fn(&Statement<'_>) -> Result<bool, Failure>,
    /// After it has run without an error.
    pub after: fn() -> Result<(), Failure>,
}

/// What the hook remembers of a statement that passes it. It lies in the hook's frame, which an error
/// jumps over, and has nothing to drop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing {
    depth: u32,
    wants_after: bool,
}

/// How many statements run one within the other. One that ends by an error leaves it too high; the
/// end of the one around it puts it right, or the next that a client sends.
static mut DEPTH: u32 = 0;

/// Whether a utility statement runs.
pub fn is_running() -> bool {
    // SAFETY: the server has one thread.
    unsafe { DEPTH > 0 }
}

/// The transaction was rolled back, and no statement runs any more.
pub fn forget_running() {
    // SAFETY: as above.
    unsafe { DEPTH = 0 }
}

static mut AROUND: Option<Around> = None;
static mut NEXT: pg_sys::ProcessUtility_hook_type = None;

/// Puts `around` around every utility statement. To be called once, by `_PG_init`.
pub(super) fn install(around: Around) {
    // SAFETY: the library is loaded once, by the one thread of the server.
    unsafe {
        AROUND = Some(around);
        NEXT = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(super::compat::on_utility);
    }
}

/// Whoever had the hook before; the server's own function if nobody had.
pub(super) fn next() -> pg_sys::ProcessUtility_hook_type {
    // SAFETY: written by install() alone.
    unsafe { NEXT }
}

/// # Safety
///
/// The server calls its hook, and no frame between has anything to drop.
pub(super) unsafe fn before(
    planned: *mut pg_sys::PlannedStmt,
    context: pg_sys::ProcessUtilityContext::Type,
) -> Passing {
    // SAFETY: the caller's promise; the server gives a valid statement.
    unsafe {
        let is_top_level = context == pg_sys::ProcessUtilityContext::PROCESS_UTILITY_TOPLEVEL;
        let depth = if is_top_level { 0 } else { DEPTH };
        DEPTH = depth;
        let mut passing = Passing { depth, wants_after: false };
        let node = (*planned).utilityStmt;
        if let Some(around) = AROUND
            && !is_never_ours((*node).type_)
            && (around.is_active)()
        {
            passing.wants_after = pg_sys::panic::pgrx_extern_c_guard(|| {
                match (around.before)(&Statement::new(node, is_top_level)) {
                    Ok(wants_after) => wants_after,
                    Err(report) => error::raise(*report),
                }
            });
        }
        DEPTH = depth + 1;
        passing
    }
}

/// # Safety
///
/// As for [`before`], which has given `passing`; the statement has ended without an error.
pub(super) unsafe fn after(passing: Passing) {
    // SAFETY: the caller's promise.
    unsafe {
        DEPTH = passing.depth;
        if let Some(around) = AROUND
            && passing.wants_after
        {
            pg_sys::panic::pgrx_extern_c_guard(|| {
                if let Err(report) = (around.after)() {
                    error::raise(*report);
                }
            });
        }
    }
}

/// What every client sends all the time, and what changes no relation.
const fn is_never_ours(tag: pg_sys::NodeTag) -> bool {
    use pg_sys::NodeTag as T;
    matches!(
        tag,
        T::T_TransactionStmt
            | T::T_VariableSetStmt
            | T::T_VariableShowStmt
            | T::T_PrepareStmt
            | T::T_DeallocateStmt
            | T::T_DeclareCursorStmt
            | T::T_FetchStmt
            | T::T_ClosePortalStmt
            | T::T_ListenStmt
            | T::T_NotifyStmt
            | T::T_UnlistenStmt
            | T::T_LockStmt
    )
}
