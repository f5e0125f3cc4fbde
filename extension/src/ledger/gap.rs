//! Why the ledger cannot answer, or not completely.

use std::io;

use stillpoint_check::Oid;

use crate::fence::{ErrorReport, Failure, SqlState};

/// What is in the way of an answer.
#[derive(Debug)]
pub enum Gap {
    /// What was given is no bookmark.
    Malformed,
    /// The bookmark is one of a later version of this extension.
    Newer {
        /// The version of its format.
        version: u32,
    },
    /// It was taken in another cluster.
    OtherCluster,
    /// It was taken in another database.
    OtherDatabase {
        /// That one.
        database: Oid,
    },
    /// The extension was dropped since, and created again.
    OtherLedger,
    /// The database was dropped since, and another made of a copy of it under the same number.
    OtherFiles,
    /// It is of a time that this cluster has not come to: it was restored to an earlier one.
    FromTheFuture,
    /// The standby has not come to it yet.
    NotReplayed,
    /// It was pruned, or its transaction was rolled back.
    Forgotten,
    /// Something may have gone unrecorded since.
    Interrupted,
    /// When it was taken, a transaction was prepared that nothing has recorded.
    UnrecordedPrepared,
    /// The second bookmark is older than the first.
    Reversed,
    /// The server runs without the library.
    NotPreloaded,
    /// The file that tells of gaps cannot be read or written.
    NoWitness {
        /// Why.
        cause: io::Error,
    },
    /// It cannot be noted there that something goes unrecorded.
    NotNoted {
        /// Why.
        cause: io::Error,
    },
    /// Something goes unrecorded just now.
    Unrecorded {
        /// The processes that do it; 0 for a prepared transaction.
        by: Vec<i64>,
    },
    /// Bookmarks are taken on the primary.
    OnStandby {
        /// The SQL function.
        command: String,
    },
}

/// What a user is told.
struct Words {
    state: SqlState,
    message: String,
    detail: Option<String>,
    hint: &'static str,
}

const FULL: &str = "Take a full backup.";
const PRELOAD: &str =
    "Add stillpoint to shared_preload_libraries, restart the server, and take a full backup.";

impl Gap {
    /// The reason in one sentence, for who asks whether the ledger is complete.
    pub fn reason(&self) -> String {
        self.words().message
    }

    fn words(&self) -> Words {
        let unusable = SqlState::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
        let words = |state, message: &str, hint| Words {
            state,
            message: message.to_owned(),
            detail: None,
            hint,
        };
        let because = |words: Words, detail: String| Words { detail: Some(detail), ..words };
        match self {
            Self::Malformed => words(
                SqlState::ERRCODE_INVALID_PARAMETER_VALUE,
                "this is not a bookmark of the ledger",
                "Give the text that stillpoint.bookmark() or begin_backup() has returned.",
            ),
            Self::Newer { version } => words(
                SqlState::ERRCODE_FEATURE_NOT_SUPPORTED,
                &format!("the bookmark has format {version}, of a later version of stillpoint"),
                "Update the extension.",
            ),
            Self::OtherCluster => {
                words(unusable, "the bookmark was taken in another cluster", FULL)
            }
            Self::OtherDatabase { database } => because(
                words(
                    unusable,
                    "the bookmark was taken in another database",
                    "Ask in the database where it was taken: each has a ledger of its own.",
                ),
                format!("It is of the database with OID {database}."),
            ),
            Self::OtherLedger => words(
                unusable,
                "the extension has been created anew since the bookmark was taken",
                FULL,
            ),
            Self::OtherFiles => words(
                unusable,
                "the database has been made of a copy since the bookmark was taken",
                FULL,
            ),
            Self::FromTheFuture => because(
                words(unusable, "the bookmark is from a time that this cluster has not had", FULL),
                "The cluster has been restored to an earlier state.".to_owned(),
            ),
            Self::NotReplayed => words(
                unusable,
                "this standby has not come to the bookmark yet",
                "Wait until it has replayed more of the WAL.",
            ),
            Self::Forgotten => because(
                words(unusable, "the bookmark is not known", FULL),
                "It was older than what the ledger keeps, its transaction was rolled back, or the \
                 cluster has been restored to an earlier state."
                    .to_owned(),
            ),
            Self::Interrupted => because(
                words(unusable, "the ledger has a gap since the bookmark was taken", FULL),
                "The server ran without the library, recording was off or failed, or the data \
                 directory was copied, restored, or promoted."
                    .to_owned(),
            ),
            Self::UnrecordedPrepared => words(
                unusable,
                "the bookmark was taken while a transaction was prepared that may not be recorded",
                FULL,
            ),
            Self::Reversed => words(
                SqlState::ERRCODE_INVALID_PARAMETER_VALUE,
                "the second bookmark is older than the first",
                "Exchange them.",
            ),
            Self::NotPreloaded => words(
                unusable,
                "the library \"stillpoint\" is not preloaded: the ledger records nothing",
                PRELOAD,
            ),
            Self::NoWitness { cause } => words(
                SqlState::ERRCODE_IO_ERROR,
                &format!("could not use file \"stillpoint.witness\": {cause}"),
                "Restart the server when the cause is gone, and take a full backup.",
            ),
            Self::NotNoted { cause } => words(
                SqlState::ERRCODE_IO_ERROR,
                &format!(
                    "could not note in file \"stillpoint.witness\" that the ledger has a gap: \
                          {cause}"
                ),
                "Repair the cause, or take stillpoint out of shared_preload_libraries and restart.",
            ),
            Self::Unrecorded { by } => because(
                words(
                    SqlState::ERRCODE_OBJECT_IN_USE,
                    "no bookmark can be taken while something goes unrecorded",
                    "Try again when it has ended.",
                ),
                holders(by),
            ),
            Self::OnStandby { command } => words(
                SqlState::ERRCODE_READ_ONLY_SQL_TRANSACTION,
                &format!("cannot execute {command} during recovery"),
                "Take the bookmark on the primary; what is void since then can be read here.",
            ),
        }
    }
}

fn holders(processes: &[i64]) -> String {
    let name = |pid: &i64| match pid {
        0 => "a prepared transaction".to_owned(),
        pid => format!("process {pid}"),
    };
    let names: Vec<String> = processes.iter().map(name).collect();
    if names.is_empty() {
        return "It has just ended, or waits to begin.".to_owned();
    }
    format!("It is done by {}.", names.join(", "))
}

impl From<Gap> for Failure {
    fn from(gap: Gap) -> Self {
        let Words { state, message, detail, hint } = gap.words();
        let report = ErrorReport::new(state, message, "ledger").set_hint(hint);
        Self::new(match detail {
            Some(detail) => report.set_detail(detail),
            None => report,
        })
    }
}
