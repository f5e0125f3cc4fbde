//! Errors on their way to the server.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::pg_sys;
use pg_sys::panic::CaughtError;

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

/// An error that was kept from passing on.
#[derive(Debug)]
pub struct Caught {
    /// Its code.
    pub state: SqlState,
    /// Its primary message.
    pub message: String,
}

/// Runs `work` and gives its error, the server's included, instead of letting it pass. What
/// `work` has done is not undone.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Caught> {
    let outcome = catch_unwind(AssertUnwindSafe(|| match work() {
        Ok(done) => done,
        // Raised, since only what is raised tells its code.
        Err(report) => raise(*report),
    }));
    outcome.map_err(|panic| match panic.downcast::<CaughtError>() {
        Ok(error) => {
            let (CaughtError::PostgresError(report)
            | CaughtError::ErrorReport(report)
            | CaughtError::RustPanic { ereport: report, .. }) = *error;
            Caught { state: report.sql_error_code(), message: report.message().to_owned() }
        }
        Err(panic) => match panic.downcast::<pg_sys::panic::ErrorReportWithLevel>() {
            Ok(report) => {
                Caught { state: report.sql_error_code(), message: report.message().to_owned() }
            }
            // Not an error of the server: a bug of ours, which must be known as one.
            Err(panic) => resume_unwind(panic),
        },
    })
}

/// Tells the server's log.
pub fn log(message: String) {
    ErrorReport::new(SqlState::ERRCODE_SUCCESSFUL_COMPLETION, message, "")
        .report(pg_sys::elog::PgLogLevel::LOG);
}

/// Tells the user of something that does not end his statement.
pub fn warn(report: ErrorReport) {
    report.report(pg_sys::elog::PgLogLevel::WARNING);
}
