//! What the command line reports.
//!
//! Every module has an error enum of its own, which says as a verb phrase what could not be
//! done, and to what; a cause is part of the sentence, so that one line tells it all. Hints say
//! what the user can do next. The policy for exit codes is here alone: words and settings that make
//! no sense, all found before anything is connected, are wrong usage, everything else is a
//! failure; one of another number where the status of a user's command would be ours. Passwords are in no error: connection strings are never quoted.

use crate::commands::{dump, ledger, restore, verify};
use crate::connect;
use crate::exit::ExitStatus;
use crate::selection;

/// Why a command has failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Where to connect cannot be understood.
    #[error(transparent)]
    Connect(#[from] connect::Error),
    /// `dump`.
    #[error(transparent)]
    Dump(#[from] dump::Error),
    /// `verify`.
    #[error(transparent)]
    Verify(#[from] verify::Error),
    /// `restore`.
    #[error(transparent)]
    Restore(#[from] restore::Error),
    /// `ledger`.
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
    /// Options that make no sense together.
    #[error("{0}")]
    Usage(&'static str),
    /// A report that cannot be written.
    #[error("could not write the report: {0}")]
    Report(std::io::Error),
    /// The system does not let us handle signals.
    #[error("could not handle signals: {0}")]
    Signals(std::io::Error),
}

impl Error {
    /// The exit code that goes with it.
    #[must_use]
    pub fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Connect(
                connect::Error::Invalid { .. }
                | connect::Error::TlsRequired
                | connect::Error::NoDatabase,
            )
            | Self::Dump(
                dump::Error::Compression(_) | dump::Error::Selection(selection::Error::Pattern(_)),
            )
            | Self::Usage(_) => ExitStatus::Usage,
            Self::Ledger(ledger::Error::Start { source, .. }) => ExitStatus::of_start(source),
            Self::Ledger(ledger::Error::ForCommand(_)) => ExitStatus::OurFailure,
            _ => ExitStatus::Failed,
        }
    }

    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Dump(error) => error.hint(),
            Self::Verify(error) => error.hint(),
            Self::Restore(error) => error.hint(),
            Self::Ledger(error) => error.hint(),
            Self::Connect(error) => error.hint(),
            Self::Usage(_) | Self::Report(_) | Self::Signals(_) => None,
        }
    }
}
