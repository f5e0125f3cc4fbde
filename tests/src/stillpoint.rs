//! The client under test.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::{Cluster, Finished, Program, Running};

/// A `stillpoint` command, connected to a database unless told otherwise.
pub struct Stillpoint {
    program: Program,
}

impl Stillpoint {
    /// `stillpoint COMMAND` with the connection options of a cluster's database.
    #[must_use]
    pub fn new(cluster: &Cluster, database: &str, command: &str) -> Self {
        let Self { program } = Self::unconnected(cluster, command);
        Self { program: program.connected_to(cluster, database) }
    }

    /// `stillpoint COMMAND` without connection options.
    #[must_use]
    pub fn unconnected(cluster: &Cluster, command: &str) -> Self {
        Self { program: Program::new(cluster, client_binary()).arg(command) }
    }

    /// `stillpoint dump -f ARCHIVE --report json` of a database, with a back-off for tests.
    #[must_use]
    pub fn dump(cluster: &Cluster, database: &str, archive: &Path) -> Self {
        Self::new(cluster, database, "dump").arg("-f").arg(archive).args([
            "--report",
            "json",
            "--backoff",
            "0.05",
        ])
    }

    /// `stillpoint ledger ACTION` with the connection options of a cluster's database.
    #[must_use]
    pub fn ledger(cluster: &Cluster, database: &str, action: &str) -> Self {
        let Self { program } = Self::unconnected(cluster, "ledger").arg(action);
        Self { program: program.connected_to(cluster, database) }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(self, argument: impl AsRef<OsStr>) -> Self {
        Self { program: self.program.arg(argument) }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(self, arguments: impl IntoIterator<Item = A>) -> Self {
        Self { program: self.program.args(arguments) }
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(self, name: &str, value: impl AsRef<OsStr>) -> Self {
        Self { program: self.program.env(name, value) }
    }

    /// Gives it a file to read from.
    #[must_use]
    pub fn stdin(self, file: File) -> Self {
        Self { program: self.program.stdin(file) }
    }

    /// Runs the command to its end.
    #[track_caller]
    #[must_use]
    pub fn run(self) -> Finished {
        self.program.run()
    }

    /// Starts the command.
    #[track_caller]
    #[must_use]
    pub fn spawn(self) -> Running {
        self.program.spawn()
    }
}

impl From<Stillpoint> for Program {
    fn from(stillpoint: Stillpoint) -> Self {
        stillpoint.program
    }
}

/// The client: what `STILLPOINT_BIN` names, or what was built with the profile of this test.
#[must_use]
pub fn client_binary() -> PathBuf {
    let binary = std::env::var_os("STILLPOINT_BIN")
        .map_or_else(|| profile_directory().join("stillpoint"), PathBuf::from);
    assert!(
        binary.exists(),
        "the client is not built: {} is missing (cargo build -p stillpoint-client)",
        binary.display()
    );
    binary
}

/// The directory of the binaries that were built with the profile of this test; tests
/// themselves are in `deps` below it.
pub(crate) fn profile_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a process knows its program");
    let directory = test.parent().expect("a program is in a directory");
    if directory.ends_with("deps") {
        directory.parent().expect("deps is in a directory").to_owned()
    } else {
        directory.to_owned()
    }
}
