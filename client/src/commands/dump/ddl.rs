//! The DDL step: `pg_dump` writes definitions and large objects under our snapshot.
//!
//! It runs before any of our workers asks for a lock. With a worker's ACCESS SHARE held and
//! somebody's ACCESS EXCLUSIVE waiting for it, `pg_dump` would queue behind that one for ever,
//! in a cycle of which the server sees only a part.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stillpoint_check::Oid;

use super::snapshot::Resolved;
use super::{AttemptEnd, Error, Options, Timings};
use crate::archive::Toc;
use crate::children::Child;
use crate::manifest::AttemptOutcome;
use crate::programs::Program;
use crate::server::{RelationRow, Session};

/// The relations of the dump, and the archive that has their definitions.
pub struct Described {
    pub resolved: Resolved,
    pub toc: Toc,
}

impl Resolved {
    /// Lets `pg_dump` write the archive without rows into `directory`, which must not exist.
    pub fn describe(
        mut self,
        options: &Options,
        pg_dump: &Program,
        directory: &Path,
        timings: &mut Timings,
    ) -> Result<Described, AttemptEnd> {
        let start = Instant::now();
        let arguments = self.pg_dump_arguments(options, pg_dump, directory)?;
        let run = run(pg_dump, &arguments, self.snapshot.connected.target.password())?;
        timings.ddl = start.elapsed();
        if !run.success {
            let timed_out = timings.ddl >= options.lock_timeout;
            return Err(self.explain_failure(run.messages, timed_out));
        }
        for line in run.messages.lines() {
            tracing::warn!("{line}");
        }
        let toc = Toc::read(directory)?;
        if let Some(difference) = difference(&toc, &self.selected.relations) {
            // pg_dump resolves patterns through functions that read the live catalog, so
            // that a rename in the meantime can make the two differ.
            return Err(self.explain_failure(difference, false));
        }
        Ok(Described { resolved: self, toc })
    }

    fn pg_dump_arguments(
        &self,
        options: &Options,
        pg_dump: &Program,
        directory: &Path,
    ) -> Result<Vec<OsString>, Error> {
        let connected = &self.snapshot.connected;
        let mut file = OsString::from("--file=");
        file.push(directory);
        let compression = options.compression.pg_dump_option(pg_dump.major)?;
        let mut arguments = vec![
            "--format=directory".into(),
            file,
            format!("--snapshot={}", self.snapshot.id).into(),
            // Rows are ours. One pattern for everything: thousands of names would be slow and
            // end at the system's limit for arguments.
            "--exclude-table-data=*.*".into(),
            // The whole archive is synced once, when it is complete.
            "--no-sync".into(),
            "--no-password".into(),
            format!("--encoding={}", archive_encoding(&connected.identity.encoding)).into(),
            format!("--compress={compression}").into(),
            format!("--lock-wait-timeout={}", options.lock_timeout.as_millis().max(1)).into(),
            format!("--dbname={}", connected.target.conninfo()).into(),
        ];
        arguments.extend(self.selected.arguments.iter().map(OsString::from));
        Ok(arguments)
    }

    /// Tells an attempt that concurrent DDL has spoilt from a `pg_dump` that can never work.
    ///
    /// Its messages are the server's, in the server's language and without a code, so they are
    /// not read: the catalogs say whether any DDL has committed since the snapshot.
    fn explain_failure(&mut self, message: String, timed_out: bool) -> AttemptEnd {
        if timed_out {
            return AttemptEnd::over(AttemptOutcome::LockTimeout, Error::PgDump { message });
        }
        match self.ddl_has_committed() {
            Ok(true) => AttemptEnd::over(AttemptOutcome::DdlFailed, Error::PgDump { message }),
            Ok(false) => AttemptEnd::Fatal(Error::PgDump { message }),
            Err(error) => AttemptEnd::Fatal(error),
        }
    }

    fn ddl_has_committed(&mut self) -> Result<bool, Error> {
        let then = self.session().catalog_digest()?;
        let mut latest = Session::start(self.snapshot.connected.target.connect()?)?;
        Ok(latest.catalog_digest()? != then)
    }
}

/// The encoding in which everything is written. What is not UTF-8 is converted by the server;
/// SQL_ASCII says that the bytes have no known encoding, and they stay as they are.
pub fn archive_encoding(database_encoding: &str) -> &'static str {
    if database_encoding == "SQL_ASCII" { "SQL_ASCII" } else { "UTF8" }
}

/// How the tables that `pg_dump` described differ from those that we resolved.
fn difference(toc: &Toc, relations: &[RelationRow]) -> Option<String> {
    let mut described: Vec<Oid> = toc.table_oids();
    described.sort_unstable();
    let mut resolved: Vec<Oid> = relations
        .iter()
        .filter(|relation| relation.configuration.is_none())
        .map(|relation| relation.relation)
        .collect();
    resolved.sort_unstable();
    if described == resolved {
        return None;
    }
    let only = |these: &[Oid], those: &[Oid]| {
        these
            .iter()
            .filter(|oid| those.binary_search(oid).is_err())
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    Some(format!(
        "pg_dump and the catalogs disagree about what to dump (OIDs only in pg_dump's archive: \
         {}; only in the catalogs: {})",
        only(&described, &resolved),
        only(&resolved, &described),
    ))
}

struct Run {
    success: bool,
    messages: String,
}

fn run(program: &Program, arguments: &[OsString], password: Option<&[u8]>) -> Result<Run, Error> {
    use std::os::unix::ffi::OsStringExt;

    let start_failed = |source| Error::Start { program: program.path.clone(), source };
    let mut command = Command::new(&program.path);
    command
        .args(arguments)
        // What the connection needs is in the conninfo; variables must not add to it.
        .env_remove("PGOPTIONS")
        .env_remove("PGAPPNAME")
        .env_remove("PGSSLMODE")
        .env("LC_MESSAGES", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some(password) = password {
        command.env("PGPASSWORD", OsString::from_vec(password.to_vec()));
    }
    let mut child = Child::spawn(&mut command).map_err(start_failed)?;
    let mut messages = Vec::new();
    if let Some(stderr) = child.stderr() {
        stderr.read_to_end(&mut messages).map_err(start_failed)?;
    }
    let status = child.wait().map_err(start_failed)?;
    let mut messages = String::from_utf8_lossy(&messages).trim_end().to_owned();
    if messages.is_empty() && !status.success() {
        messages = status.to_string();
    }
    Ok(Run { success: status.success(), messages })
}

/// What is left of a budget that started then; never nothing, since 0 means "for ever" to
/// `lock_timeout`.
pub fn remaining(budget: Duration, start: Instant) -> Duration {
    budget.saturating_sub(start.elapsed()).max(Duration::from_millis(1))
}
