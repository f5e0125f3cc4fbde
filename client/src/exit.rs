//! Exit codes: one table, one meaning each.

use std::process::ExitCode;

/// How a run of the command ended, as its caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitStatus {
    /// Done, whole.
    Done = 0,
    /// Failed; nothing that looks whole is left.
    Failed = 1,
    /// Finished, but not whole: what is missing is named in report and manifest.
    NotWhole = 2,
    /// Wrong usage or an invalid setting; nothing was connected.
    Usage = 64,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status as u8)
    }
}
