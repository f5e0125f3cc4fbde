//! What happens when the server loads the library.

use super::transaction::Listener;
use super::utility::Around;
use super::{pg_sys, relcache, transaction, utility};

/// Whether the server itself loads the library at its start (`shared_preload_libraries`), so
/// that every session has it, and no change can pass by.
pub fn is_preloading() -> bool {
    // SAFETY: a variable of the server.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// Lets errors be told without the frames that led there: those are nobody's business who calls a
/// SQL function, and the bindings would put them into the DETAIL of the server's own errors where
/// the server was started with `RUST_BACKTRACE`.
pub fn forget_backtraces() {
    for variable in ["RUST_BACKTRACE", "RUST_LIB_BACKTRACE"] {
        // SAFETY: a server's process has one thread.
        unsafe { std::env::remove_var(variable) };
    }
}

/// Puts the hook and the callbacks in their places; they stay there for as long as the server
/// runs.
pub fn install(around: Around, listener: Listener) {
    utility::install(around);
    relcache::collect();
    transaction::listen(listener);
}

/// Defines the function that the server calls when it has loaded the library.
macro_rules! on_load {
    ($function:ident) => {
        #[doc(hidden)]
        #[allow(unsafe_code, non_snake_case)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn _PG_init() {
            // SAFETY: the server calls, and this frame holds nothing.
            unsafe { $crate::fence::init::guarded($function) }
        }
    };
}
pub(crate) use on_load;

/// Runs `function` for the server.
///
/// # Safety
///
/// The server calls, and no frame between it and this one has anything to drop.
#[doc(hidden)]
pub unsafe fn guarded(function: fn()) {
    // SAFETY: the caller's promise.
    unsafe { pg_sys::panic::pgrx_extern_c_guard(function) }
}
