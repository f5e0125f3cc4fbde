//! Why the ledger cannot be written or installed.

use std::ffi::CStr;

use crate::fence::{Caught, Encoding, ErrorReport, Failure, SqlState};

/// What hinders the ledger.
#[derive(Debug)]
pub enum Hindrance {
    /// A table is not the one that this version writes.
    OtherTable {
        /// Its name.
        name: &'static CStr,
    },
    /// A table is not there.
    NoTable {
        /// Its name.
        name: &'static CStr,
    },
    /// The lock that is to mark work as going on is held by another session.
    MarkerTaken,
    /// What this session holds open was lost.
    IntervalLost,
    /// The schema that is to hold it is not a superuser's.
    ForeignSchema {
        /// Whose it is.
        owner: String,
        /// How the name is to be read.
        encoding: Encoding,
    },
    /// Transactions are prepared in this database that nothing has recorded.
    Prepared {
        /// How many.
        count: usize,
        /// The name of one.
        name: String,
        /// How the name is to be read.
        encoding: Encoding,
    },
}

impl Hindrance {
    /// The ledger itself is not there.
    pub const NO_LEDGER: Self = Self::NoTable { name: c"invalidation" };
}

impl From<Hindrance> for Failure {
    fn from(hindrance: Hindrance) -> Self {
        let report = |state, message: String| ErrorReport::new(state, message, "ledger");
        Self::new(match hindrance {
            Hindrance::NoTable { name } => report(
                SqlState::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("there is no table \"stillpoint.{}\"", name.to_string_lossy()),
            )
            .set_detail("It was renamed, or the extension is of another version than its library.")
            .set_hint("Run ALTER EXTENSION stillpoint UPDATE."),
            Hindrance::OtherTable { name } => report(
                SqlState::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!(
                    "table \"stillpoint.{}\" is not the one that this library writes",
                    name.to_string_lossy()
                ),
            )
            .set_detail("It has other columns, another access method, or is not permanent.")
            .set_hint(
                "Run ALTER EXTENSION stillpoint UPDATE. A superuser can let statements go on \
                 without a record by stillpoint.on_record_failure = warning.",
            ),
            Hindrance::MarkerTaken => report(
                SqlState::ERRCODE_LOCK_NOT_AVAILABLE,
                "could not mark the work of this statement as going on".into(),
            )
            .set_detail("Another session holds the lock that marks it."),
            Hindrance::IntervalLost => report(
                SqlState::ERRCODE_INTERNAL_ERROR,
                "the record of the work of this statement was lost".into(),
            ),
            Hindrance::ForeignSchema { owner, encoding } => report(
                SqlState::ERRCODE_INSUFFICIENT_PRIVILEGE,
                format!(
                    "schema \"stillpoint\" is owned by \"{}\", who is not a superuser",
                    encoding.for_message(&owner)
                ),
            )
            .set_detail("The owner of the schema could drop the ledger.")
            .set_hint("Drop or rename that schema, or give it to a superuser."),
            Hindrance::Prepared { count, name, encoding } => report(
                SqlState::ERRCODE_OBJECT_IN_USE,
                "the ledger cannot begin while transactions are prepared in this database".into(),
            )
            .set_detail(format!(
                "{count} of them, one named \"{}\": nothing has recorded what they replace.",
                encoding.for_message(&name)
            ))
            .set_hint("End them with COMMIT PREPARED or ROLLBACK PREPARED first."),
        })
    }
}

/// The warning that stands for an error of recording. A statement that was cancelled is cancelled:
/// that error comes back.
pub fn unrecorded(cause: Caught) -> Result<ErrorReport, Failure> {
    let Caught { state, message } = cause;
    if state == SqlState::ERRCODE_QUERY_CANCELED {
        return Err(Box::new(ErrorReport::new(state, message, "ledger")));
    }
    let message = format!("could not record what this transaction replaces: {message}");
    Ok(ErrorReport::new(state, message, "ledger")
        .set_detail("A file-level backup that relies on the ledger would keep void bytes.")
        .set_hint("Take a full backup next, and repair what hinders the recording."))
}
