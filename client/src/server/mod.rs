//! Everything the client says to a server: each query is a function with a typed result.
//!
//! Relations are named with their schema and `search_path` is empty, so that no object of the
//! database can take the place of a catalog, a function or an operator.

mod catalog;
mod copy;
mod ledger;
mod lock;
mod names;
mod session;
mod state;

use tokio_postgres::error::SqlState;

pub use catalog::{RelationRow, SequenceValue, Wanted};
pub use copy::Rows;
pub use ledger::{Begun, Consumer, Ledger, NEEDED_VERSION, Place, Status, Unusable, VoidFile};
pub use lock::Blocker;
pub use names::{NamedObjects, PARTITIONED_TABLE};
pub use session::{Identity, ServerVersion, Session, SnapshotId};
pub use state::{ChangedRelation, Fingerprint};

/// A query that failed.
#[derive(Debug, thiserror::Error)]
#[error("could not {doing}: {}", describe(.source))]
pub struct Error {
    /// What was being done, as a verb phrase.
    pub doing: String,
    source: tokio_postgres::Error,
}

impl Error {
    /// Names what was being done, for `map_err`.
    pub(crate) fn doing(what: impl Into<String>) -> impl FnOnce(tokio_postgres::Error) -> Self {
        let doing = what.into();
        move |source| Self { doing, source }
    }

    /// The SQLSTATE, if the server gave the error.
    #[must_use]
    pub fn code(&self) -> Option<&SqlState> {
        self.source.code()
    }

    /// The server's own hint.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.source.as_db_error()?.hint()
    }

    /// Whether the server gave up waiting for a lock (`lock_timeout`, or a deadlock).
    #[must_use]
    pub fn is_lock_failure(&self) -> bool {
        self.code().is_some_and(|code| {
            [SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED].contains(code)
        })
    }

    /// Whether the statement was cancelled, by its timeout or by somebody.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.code() == Some(&SqlState::QUERY_CANCELED)
    }

    /// Whether a name did not mean what it meant under the snapshot: the relation was dropped,
    /// renamed, moved, replaced by something that is no table, or is only half visible to the
    /// caches while that happens.
    #[must_use]
    pub fn is_moved_name(&self) -> bool {
        const MOVED: [SqlState; 8] = [
            SqlState::UNDEFINED_TABLE,
            SqlState::INVALID_SCHEMA_NAME,
            SqlState::WRONG_OBJECT_TYPE,
            SqlState::UNDEFINED_COLUMN,
            SqlState::UNDEFINED_OBJECT,
            // The name may now mean another relation, on which we have no privilege. If it
            // still means ours, the check finds it unmoved and the error is told after all.
            SqlState::INSUFFICIENT_PRIVILEGE,
            SqlState::INTERNAL_ERROR,
            // A view in its place, which the session's settings forbid to read.
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        ];
        self.code().is_some_and(|code| MOVED.contains(code))
    }
}

fn describe(error: &tokio_postgres::Error) -> String {
    let Some(server) = error.as_db_error() else {
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
        return format!("{error}{}", cause.unwrap_or_default());
    };
    let detail = server.detail().map(|detail| format!(" ({detail})"));
    format!("{}{}", server.message(), detail.unwrap_or_default())
}
