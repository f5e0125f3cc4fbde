//! Exit codes: one table, one meaning each.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ExitCode};

/// How a run of the command ended, as its caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Done, whole.
    Done,
    /// Failed; nothing that looks whole is left.
    Failed,
    /// Finished, but not whole: what is missing is named in report and manifest.
    NotWhole,
    /// Wrong usage or an invalid setting; nothing was connected.
    Usage,
    /// A command of the user's was to run, and it is we who have failed.
    OurFailure,
    /// That command is there and cannot be executed.
    NotExecutable,
    /// It is not there.
    NotFound,
    /// It has run, and its status is ours.
    Of(u8),
}

impl ExitStatus {
    /// The number.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::NotWhole => 2,
            Self::Usage => 64,
            Self::OurFailure => 125,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Of(code) => code,
        }
    }

    /// The status of a command that has ended; 128 + its number if a signal has ended it, as a
    /// shell has it.
    #[must_use]
    pub fn of(status: process::ExitStatus) -> Self {
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        code.and_then(|code| u8::try_from(code).ok()).map_or(Self::OurFailure, Self::Of)
    }

    /// The status of a command that the system does not start.
    #[must_use]
    pub fn of_start(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            _ => Self::NotExecutable,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commands_status_is_what_a_shell_would_give() {
        let status = |raw| ExitStatus::of(process::ExitStatus::from_raw(raw)).code();
        assert_eq!(status(0), 0);
        assert_eq!(status(3 << 8), 3);
        assert_eq!(status(255 << 8), 255);
        assert_eq!(status(9), 137);
        let start = |kind| ExitStatus::of_start(&io::Error::from(kind)).code();
        assert_eq!(start(io::ErrorKind::NotFound), 127);
        assert_eq!(start(io::ErrorKind::PermissionDenied), 126);
    }
}
