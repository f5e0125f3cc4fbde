//! The PostgreSQL client programs that do a part of the work: `pg_dump` writes the definitions
//! and the large objects, `pg_restore` loads an archive.
//!
//! They are asked for their version before anything else happens, since a program of the wrong
//! one fails late, and with a message that does not tell the user that another is at hand.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use rustix::fs::{Access, access};

/// A program that is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// `pg_dump`.
    PgDump,
    /// `pg_restore`.
    PgRestore,
}

impl Tool {
    /// The name of its file.
    pub fn name(self) -> &'static str {
        match self {
            Tool::PgDump => "pg_dump",
            Tool::PgRestore => "pg_restore",
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A program that was found and told its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Which one it is.
    pub tool: Tool,
    /// Where it is.
    pub path: PathBuf,
    /// Its version as it writes it, such as `15.20 (Debian 15.20-0+deb12u1)`.
    pub version: String,
    /// The major version, such as 15.
    pub major: u32,
}

/// Why there is no program to use.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is in none of the places to look in.
    #[error("could not find program \"{tool}\" in {}", searched(.directory.as_deref()))]
    NotFound {
        /// The program.
        tool: Tool,
        /// The one directory to look in; without it, the search path.
        directory: Option<PathBuf>,
    },
    /// The system does not start it.
    #[error("could not execute \"{}\": {source}", .path.display())]
    Execute {
        /// The program.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It does not answer when asked for its version.
    #[error("\"{} --version\" failed: {status}", .path.display())]
    VersionFailed {
        /// The program.
        path: PathBuf,
        /// How it ended.
        status: ExitStatus,
    },
    /// Its answer names no version.
    #[error("could not read a version from the output of \"{} --version\": {output}", .path.display())]
    VersionUnreadable {
        /// The program.
        path: PathBuf,
        /// What it wrote.
        output: String,
    },
    /// `pg_dump` refuses servers newer than itself: it does not know what they have.
    #[error("\"{}\" is of version {major}, and the server of version {server_major}", .path.display())]
    OlderThanServer {
        /// The program.
        path: PathBuf,
        /// Its major version.
        major: u32,
        /// The server's.
        server_major: u32,
    },
    /// `pg_restore` cannot read an archive of a newer format than its own.
    #[error(
        "\"{}\" is of version {major}, and the archive needs version {needed} or newer",
        .path.display()
    )]
    OlderThanArchive {
        /// The program.
        path: PathBuf,
        /// Its major version.
        major: u32,
        /// The oldest that can read the archive.
        needed: u32,
    },
}

fn searched(directory: Option<&Path>) -> String {
    match directory {
        Some(directory) => format!("directory \"{}\"", directory.display()),
        None => "the search path".to_owned(),
    }
}

impl ProgramError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            ProgramError::NotFound { directory: None, .. } => Some(
                "Install the PostgreSQL client programs, or name their directory with --bindir."
                    .to_owned(),
            ),
            ProgramError::NotFound { directory: Some(_), .. } => Some(
                "--bindir must name a directory that holds the PostgreSQL client programs."
                    .to_owned(),
            ),
            ProgramError::OlderThanServer { server_major: needed, .. }
            | ProgramError::OlderThanArchive { needed, .. } => Some(format!(
                "Name with --bindir the directory of client programs of version {needed} or newer."
            )),
            _ => None,
        }
    }
}

impl Program {
    /// Finds a program in `bindir`, or, without one, in the search path, and asks its version.
    pub fn find(tool: Tool, bindir: Option<&Path>) -> Result<Program, ProgramError> {
        let path = match bindir {
            Some(directory) => executable_in(directory, tool),
            None => env::var_os("PATH").and_then(|path| search(&path, tool)),
        };
        let path = path.ok_or_else(|| ProgramError::NotFound {
            tool,
            directory: bindir.map(Path::to_owned),
        })?;
        Program::ask(tool, path)
    }

    fn ask(tool: Tool, path: PathBuf) -> Result<Program, ProgramError> {
        let output = Command::new(&path)
            .arg("--version")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|source| ProgramError::Execute { path: path.clone(), source })?;
        if !output.status.success() {
            return Err(ProgramError::VersionFailed { path, status: output.status });
        }
        let output = String::from_utf8_lossy(&output.stdout);
        match parse_version(&output) {
            Some((version, major)) => Ok(Program { tool, path, version, major }),
            None => Err(ProgramError::VersionUnreadable { path, output: output.trim().to_owned() }),
        }
    }

    /// Fails if the server is of a newer major version than this `pg_dump`.
    pub fn require_not_older_than_server(&self, server_major: u32) -> Result<(), ProgramError> {
        if self.major >= server_major {
            return Ok(());
        }
        Err(ProgramError::OlderThanServer {
            path: self.path.clone(),
            major: self.major,
            server_major,
        })
    }

    /// Fails if this `pg_restore` is older than the oldest that can read the archive.
    pub fn require_at_least(&self, needed: u32) -> Result<(), ProgramError> {
        if self.major >= needed {
            return Ok(());
        }
        Err(ProgramError::OlderThanArchive { path: self.path.clone(), major: self.major, needed })
    }

    /// A command that runs it.
    pub fn command(&self) -> Command {
        Command::new(&self.path)
    }
}

/// The first directory of a search path that has the program. An empty part means the current
/// directory for a shell; nobody who wrote one wants a program to be run from there.
fn search(path: &OsStr, tool: Tool) -> Option<PathBuf> {
    env::split_paths(path)
        .filter(|directory| !directory.as_os_str().is_empty())
        .find_map(|directory| executable_in(&directory, tool))
}

fn executable_in(directory: &Path, tool: Tool) -> Option<PathBuf> {
    let path = directory.join(tool.name());
    (path.is_file() && access(&path, Access::EXEC_OK).is_ok()).then_some(path)
}

/// Reads `NAME (PRODUCT) VERSION`, where the version is `15.20`, `18beta1` or `19devel`, and more
/// may follow, such as a distribution's own version.
fn parse_version(output: &str) -> Option<(String, u32)> {
    let line = output.lines().next()?;
    let version = match line.find(") ") {
        Some(position) => &line[position + 2..],
        None => line.split_once(' ')?.1,
    };
    let version = version.trim();
    let digits = version.find(|character: char| !character.is_ascii_digit());
    let major = version[..digits.unwrap_or(version.len())].parse().ok()?;
    Some((version.to_owned(), major))
}

/// Programs for tests.
#[cfg(test)]
pub mod sample {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// Makes a program of a shell script.
    pub fn program(directory: &Path, name: &str, script: &str) -> PathBuf {
        let (text, path) = (directory.join("script"), directory.join(name));
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).expect("a script");
        fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).expect("permissions");
        // Copied by another process: if this one had the program open for writing while another
        // test starts a child, the child would hold it open, too, and it could not be executed.
        let copied = Command::new("cp").arg("-p").args([&text, &path]).status().expect("cp");
        assert!(copied.success());
        path
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::sample::program;
    use super::*;

    #[test]
    fn every_way_to_write_a_version_is_read() {
        for (output, version, major) in [
            (
                "pg_dump (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)\n",
                "15.20 (Debian 15.20-0+deb12u1)",
                15,
            ),
            ("pg_restore (PostgreSQL) 18beta1\n", "18beta1", 18),
            ("pg_dump (PostgreSQL) 19devel", "19devel", 19),
            ("pg_dump (PostgreSQL) 13\n", "13", 13),
            ("pg_dump (Greenplum Database) 12.12\n", "12.12", 12),
            ("pg_dump 16.1\n", "16.1", 16),
        ] {
            assert_eq!(parse_version(output), Some((version.to_owned(), major)), "{output}");
        }
        for output in ["", "pg_dump\n", "pg_dump (PostgreSQL) unknown\n"] {
            assert_eq!(parse_version(output), None, "{output}");
        }
    }

    #[test]
    fn a_named_directory_is_the_only_one_that_is_searched() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = Program::find(Tool::PgDump, Some(directory.path())).expect_err("it is empty");
        assert!(matches!(error, ProgramError::NotFound { .. }), "{error}");
        assert!(error.hint().expect("a hint").contains("--bindir"));

        let path = program(directory.path(), "pg_dump", "echo 'pg_dump (PostgreSQL) 14.2'");
        let found = Program::find(Tool::PgDump, Some(directory.path())).expect("a program");
        assert_eq!((found.path, found.major), (path, 14));
    }

    #[test]
    fn the_search_path_is_searched_in_order_and_only_for_programs() {
        let (first, second) =
            (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        fs::write(first.path().join("pg_restore"), "not executable").expect("a file");
        let path = program(second.path(), "pg_restore", "true");
        let searched = env::join_paths(["".as_ref(), first.path(), second.path()]).expect("a path");
        assert_eq!(search(&searched, Tool::PgRestore), Some(path));
    }

    #[test]
    fn a_program_that_does_not_answer_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        program(directory.path(), "pg_dump", "exit 3");
        let error = Program::find(Tool::PgDump, Some(directory.path())).expect_err("it fails");
        assert!(error.to_string().ends_with("failed: exit status: 3"), "{error}");
        program(directory.path(), "pg_dump", "echo hello");
        let error = Program::find(Tool::PgDump, Some(directory.path())).expect_err("no version");
        assert!(error.to_string().ends_with("--version\": hello"), "{error}");
    }

    #[test]
    fn an_old_program_is_refused_with_both_versions() {
        let old = Program {
            tool: Tool::PgDump,
            path: "/opt/bin/pg_dump".into(),
            version: "15.20".to_owned(),
            major: 15,
        };
        assert!(old.require_not_older_than_server(15).is_ok());
        let error = old.require_not_older_than_server(17).expect_err("older");
        assert_eq!(
            error.to_string(),
            "\"/opt/bin/pg_dump\" is of version 15, and the server of version 17"
        );
        assert!(error.hint().expect("a hint").contains("version 17 or newer"));
        assert!(old.require_at_least(16).is_err());
    }
}
