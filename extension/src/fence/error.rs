//! Errors on their way to the server.

use super::pg_sys;

pub use pg_sys::errcodes::PgSqlErrorCode as SqlState;
pub use pg_sys::panic::ErrorReport;

/// An error that a function returns for the server to raise.
pub type Failure = Box<ErrorReport>;

/// Ends the SQL function with an error.
pub(super) fn raise(report: ErrorReport) -> ! {
    report.report(pg_sys::elog::PgLogLevel::ERROR);
    unreachable!("a report of level ERROR does not return")
}

/// Ends the SQL function because the server or the SQL that is installed in it is not what
/// this library was built for.
#[track_caller]
pub(super) fn raise_internal(message: String) -> ! {
    raise(ErrorReport::new(SqlState::ERRCODE_INTERNAL_ERROR, message, ""))
}
