//! `restore`: an archive is verified, and then loaded by `pg_restore`.
//!
//! `pg_restore` itself would load a damaged file as far as it can be read, and an archive whose
//! dump had to leave rows out without a word. Both are refused before anything is connected.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::time::Instant;

use crate::archive::{Toc, TocError};
use crate::commands::verify;
use crate::connect::Target;
use crate::exit::ExitStatus;
use crate::interrupt::Child;
use crate::manifest::LeftOut;
use crate::programs::{Program, ProgramError, Tool};

/// What is restored, and whereto.
#[derive(Clone, Debug)]
pub struct Options {
    /// The archive's directory.
    pub directory: PathBuf,
    /// The database.
    pub target: Target,
    /// Sessions that load in parallel, and files that are verified in parallel.
    pub jobs: usize,
    /// Load an archive, too, whose dump was not whole.
    pub allow_incomplete: bool,
    /// Where `pg_restore` is; `None`: in the path.
    pub bindir: Option<PathBuf>,
    /// More options for `pg_restore`, such as `--clean` or `--no-owner`.
    pub pg_restore_options: Vec<OsString>,
}

/// Why an archive was not restored, or not wholly.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be verified.
    #[error(transparent)]
    Verify(#[from] verify::Error),
    /// It is damaged. What is wrong has been told, a line each.
    #[error("archive \"{}\" is damaged: nothing was restored", .directory.display())]
    Damaged {
        /// The archive.
        directory: PathBuf,
    },
    /// The dump had to leave something out.
    #[error("archive \"{}\" is not whole: nothing was restored", .directory.display())]
    NotWhole {
        /// The archive.
        directory: PathBuf,
    },
    /// Its table of contents cannot be read.
    #[error(transparent)]
    Toc(#[from] TocError),
    /// There is no `pg_restore` that can read it.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// `pg_restore` does not start.
    #[error("could not execute \"{}\": {source}", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// `pg_restore` has told errors, or has not come to its end.
    #[error("pg_restore failed: {status}")]
    PgRestore {
        /// How it ended.
        status: process::ExitStatus,
    },
}

impl Error {
    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Verify(error) => error.hint(),
            Self::Damaged { .. } => Some(
                "Restore another archive. What is left of this one can be loaded with pg_restore."
                    .to_owned(),
            ),
            Self::NotWhole { .. } => {
                Some("With --allow-incomplete, what is there is restored.".to_owned())
            }
            Self::Toc(error) => error.hint(),
            Self::Program(error) => error.hint(),
            Self::PgRestore { status } if status.code() == Some(1) => Some(
                "Its messages say what could not be restored; the rest may have been.".to_owned(),
            ),
            Self::Start { .. } | Self::PgRestore { .. } => None,
        }
    }
}

/// Verifies the archive and lets `pg_restore` load it.
///
/// Gives [`ExitStatus::NotWhole`] if an archive that is not whole was loaded on demand: the
/// database lacks rows then, however well all went.
///
/// # Errors
///
/// Whatever keeps the database from holding all that the archive holds. As with `pg_restore`
/// itself, one statement that fails does not keep the others from being tried, unless
/// `--exit-on-error` is among its options.
pub fn run(options: &Options) -> Result<ExitStatus, Error> {
    let start = Instant::now();
    let pg_restore = Program::find(Tool::PgRestore, options.bindir.as_deref())?;
    let report =
        verify::run(&verify::Options { directory: options.directory.clone(), jobs: options.jobs })?;
    refuse_damaged(&report, options)?;
    let is_whole = report.complete() == Some(true);
    refuse_incomplete(is_whole, report.left_out(), options)?;
    let toc = Toc::read(&options.directory)?;
    pg_restore.require_at_least(toc.minimum_pg_restore_major())?;

    load(&pg_restore, options)?;
    let (tables, rows) = report.contents();
    tracing::info!(
        "restored archive \"{}\": {tables} tables, {rows} rows in {:.1} s{}",
        options.directory.display(),
        start.elapsed().as_secs_f64(),
        if is_whole { "" } else { "; NOT WHOLE: the dump had left rows out" },
    );
    Ok(if is_whole { ExitStatus::Done } else { ExitStatus::NotWhole })
}

fn refuse_damaged(report: &verify::Report, options: &Options) -> Result<(), Error> {
    if report.outcome() == verify::Outcome::Intact {
        return Ok(());
    }
    for finding in report.findings() {
        tracing::error!("{finding}");
    }
    Err(Error::Damaged { directory: options.directory.clone() })
}

fn refuse_incomplete(is_whole: bool, left_out: &[LeftOut], options: &Options) -> Result<(), Error> {
    for LeftOut { schema, relation, reasons, .. } in left_out {
        let reasons = reasons.join(", ");
        tracing::warn!("the rows of {schema}.{relation} are not in the archive: {reasons}");
    }
    if is_whole || options.allow_incomplete {
        return Ok(());
    }
    Err(Error::NotWhole { directory: options.directory.clone() })
}

fn load(pg_restore: &Program, options: &Options) -> Result<(), Error> {
    let failed = |source| Error::Start { program: pg_restore.path.clone(), source };
    let mut child = Child::spawn(&mut command(pg_restore, options)).map_err(failed)?;
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(()) } else { Err(Error::PgRestore { status }) }
}

/// Its messages go where ours go, as they come: a restore takes long, and they are the user's.
fn command(pg_restore: &Program, options: &Options) -> Command {
    let mut command = pg_restore.command();
    command.arg("--no-password").arg(format!("--dbname={}", options.target.conninfo()));
    // Not for one: some of its options want that no number was given.
    if options.jobs > 1 {
        command.arg(format!("--jobs={}", options.jobs));
    }
    command
        .args(&options.pg_restore_options)
        .arg("--")
        .arg(&options.directory)
        // What the connection needs is in the conninfo; variables must not add to it.
        .env_remove("PGOPTIONS")
        .env_remove("PGSSLMODE")
        .env("PGAPPNAME", "stillpoint")
        .stdin(Stdio::null());
    if let Some(password) = options.target.password() {
        command.env("PGPASSWORD", OsString::from_vec(password.to_vec()));
    }
    command
}
