//! The calling convention of SQL functions.

use stillpoint_check::Oid;

pub use super::pg_sys::{Datum, FunctionCallInfo, Pg_finfo_record};
use super::{Encoding, Failure, datum, error, pg_sys};

/// One call of a SQL function.
#[derive(Debug)]
pub struct Call {
    info: FunctionCallInfo,
}

/// What a function gives back to the server.
#[derive(Debug)]
pub struct Answer(Datum);

impl Call {
    pub(super) fn as_raw(&self) -> FunctionCallInfo {
        self.info
    }

    /// The argument with that number (from 0), an array of OIDs: `None` if it is NULL, and
    /// `None` in place of each element that is.
    pub fn oid_array(&self, number: usize) -> Option<Vec<Option<Oid>>> {
        // SAFETY: the function is declared with that type, in sql/.
        self.argument(number).map(|value| unsafe { datum::read_oid_array(value) })
    }

    /// The argument with that number (from 0), a text: `None` if it is NULL.
    pub fn text(&self, number: usize) -> Option<String> {
        let encoding = Encoding::of_database();
        // SAFETY: as above.
        self.argument(number).map(|value| unsafe { datum::read_text(value, encoding) })
    }

    fn argument(&self, number: usize) -> Option<Datum> {
        // SAFETY: see run(). The server passes as many arguments as it counts.
        let argument = unsafe {
            let count = usize::try_from((*self.info).nargs).unwrap_or(0);
            (*self.info).args.as_slice(count)[number]
        };
        (!argument.isnull).then_some(argument.value)
    }

    /// What the server says of the set that it expects; `None` if it expects none.
    pub(super) fn return_set_info(&self) -> Option<*mut pg_sys::ReturnSetInfo> {
        // SAFETY: see run(). A node starts with its tag.
        unsafe {
            let node = (*self.info).resultinfo;
            let is_set = !node.is_null() && (*node).type_ == pg_sys::NodeTag::T_ReturnSetInfo;
            is_set.then(|| node.cast())
        }
    }
}

impl Answer {
    /// A value of type `text`. It must not be made while a connection to SPI is open, with
    /// which it would end.
    pub fn text(value: &str) -> Self {
        Self(datum::text(value, Encoding::of_database()))
    }

    /// A value of type `bigint`.
    pub fn bigint(value: i64) -> Self {
        Self(datum::wide(value as u64))
    }

    /// What a function returns that is declared to return nothing.
    pub fn nothing() -> Self {
        Self(Datum::null())
    }

    /// What a function returns whose rows are in a store.
    pub(super) fn rows_are_stored() -> Self {
        Self(Datum::null())
    }
}

/// Runs a function for the server and turns its error, or its panic, into the server's.
///
/// # Safety
///
/// The server calls, by its convention for C functions of version 1, and no frame between it
/// and this one has anything to drop: an error jumps over them.
#[doc(hidden)]
pub unsafe fn run(info: FunctionCallInfo, function: fn(&Call) -> Result<Answer, Failure>) -> Datum {
    let body = || match function(&Call { info }) {
        Ok(answer) => answer.0,
        Err(report) => error::raise(*report),
    };
    // SAFETY: the caller's promise.
    unsafe { pg_sys::panic::pgrx_extern_c_guard(body) }
}

#[doc(hidden)]
pub static VERSION_1: Pg_finfo_record = Pg_finfo_record { api_version: 1 };

/// Gives a function of the type that [`run`] takes to the server: first the symbol that SQL
/// names, then the one in which the server looks up the calling convention.
macro_rules! sql_function {
    ($symbol:ident, $convention:ident, $function:path) => {
        #[doc(hidden)]
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $convention() -> &'static $crate::fence::call::Pg_finfo_record {
            &$crate::fence::call::VERSION_1
        }

        #[doc(hidden)]
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $symbol(
            info: $crate::fence::call::FunctionCallInfo,
        ) -> $crate::fence::call::Datum {
            // SAFETY: the server calls, as the symbol above has told it to, and this frame
            // holds nothing.
            unsafe { $crate::fence::call::run(info, $function) }
        }
    };
}
pub(crate) use sql_function;
