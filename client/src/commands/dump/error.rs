//! What can end a dump, and what ends only an attempt.

use std::io;
use std::path::PathBuf;

use crate::archive::TocError;
use crate::codec::CompressionError;
use crate::connect;
use crate::durable::DurableError;
use crate::manifest::{AttemptOutcome, Change, ManifestError};
use crate::programs::ProgramError;
use crate::selection;
use crate::server::{self, ServerVersion, Session};

/// Why there is no dump.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] connect::Error),
    /// A query that failed.
    #[error(transparent)]
    Server(#[from] server::Error),
    /// What the user asked for is not there.
    #[error(transparent)]
    Selection(#[from] selection::Error),
    /// No `pg_dump` that could do it.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The codec is not to be had.
    #[error(transparent)]
    Compression(#[from] CompressionError),
    /// The table of contents cannot be read or written.
    #[error(transparent)]
    Toc(#[from] TocError),
    /// The manifest cannot be written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The archive cannot be made durable.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// A server whose catalogs we do not know.
    #[error("server version {version} is not supported")]
    ServerTooOld {
        /// What it says it is.
        version: ServerVersion,
    },
    /// The name of the archive is taken.
    #[error("\"{}\" exists already", .0.display())]
    Exists(PathBuf),
    /// Another dump is writing to that name, or a killed one has left its directory.
    #[error("unfinished archive \"{}\" exists", .0.display())]
    Unfinished(PathBuf),
    /// A worker's connection, or the second one of the check, has reached another server than
    /// the first.
    #[error("a connection has reached another server than the first, or an older state of it")]
    OtherServer,
    /// `pg_dump` has failed.
    #[error("could not dump the definitions: {message}")]
    PgDump {
        /// What it said.
        message: String,
    },
    /// The definitions may name what the archive has under another name.
    #[error("renamed or replaced while pg_dump read the definitions: {}", .0.join(", "))]
    Renamed(Vec<String>),
    /// A program that cannot be run.
    #[error("could not run \"{}\": {source}", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody held a lock for too long.
    #[error("could not lock the relations in time{}", list(.blockers))]
    LockTimeout {
        /// Who stood in the way, a line each.
        blockers: Vec<String>,
        /// What the server said.
        source: server::Error,
    },
    /// `pg_dump` waited for somebody for too long.
    #[error("could not dump the definitions in time, pg_dump waited{}", list(.blockers))]
    DdlBlocked {
        /// Who stood in the way, a line each.
        blockers: Vec<String>,
    },
    /// A catalog was not to be had for too long.
    #[error("{source}{}", list(.blockers))]
    CatalogBlocked {
        /// Who stood in the way, a line each.
        blockers: Vec<String>,
        /// What could not be done.
        source: Box<Error>,
    },
    /// Rows that could not be read.
    #[error("could not export {relation}: {source}")]
    Rows {
        /// The relation.
        relation: String,
        /// What the server or the connection said.
        source: server::Error,
    },
    /// A sequence that has no row, or more than one: its storage is damaged.
    #[error("sequence {sequence} has given no value")]
    NoValue {
        /// The sequence.
        sequence: String,
    },
    /// A file of the archive that could not be written or read.
    #[error("could not {doing} \"{}\": {source}", .path.display())]
    File {
        /// A verb phrase.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that is no part of the archive: a bug, or somebody else's.
    #[error("\"{}\" is no part of the archive", .0.display())]
    Stray(PathBuf),
    /// Relations are not what the snapshot promises; with `--strict`, this ends the dump.
    #[error("{} moved while the dump started: {}", relations(.0.len()), .0.join(", "))]
    Moved(Vec<String>),
    /// What was given up since another part of the dump has failed. It is that failure which is
    /// told, and not this.
    #[error("stopped, since another part of the dump has failed")]
    Stopped,
    /// A worker has panicked: a bug.
    #[error("internal error: a worker thread has panicked")]
    Panic,
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Connect(error) => return error.hint(),
            Self::Server(error) => return error.hint().map(str::to_owned),
            Self::Rows { source, .. } => return source.hint().map(str::to_owned),
            Self::Program(error) => return error.hint(),
            Self::Compression(error) => return error.hint(),
            Self::Toc(error) => return error.hint(),
            Self::ServerTooOld { .. } => "PostgreSQL 13 and newer are supported.",
            Self::Exists(_) => "Choose another name, or remove it first.",
            Self::Unfinished(_) => {
                "Another dump is writing it, or one that was killed has left it. In the second \
                 case, remove it."
            }
            Self::OtherServer => {
                "Name one host: a list of hosts, a name with several addresses or a proxy must \
                 not lead to different servers."
            }
            Self::LockTimeout { blockers, .. } | Self::CatalogBlocked { blockers, .. }
                if blockers.is_empty() =>
            {
                "Whoever had the locks is gone by now: try again, or wait longer with \
                 --lock-timeout."
            }
            Self::LockTimeout { .. } | Self::DdlBlocked { .. } | Self::CatalogBlocked { .. } => {
                "End that transaction, or wait longer with --lock-timeout."
            }
            Self::Renamed(_) => "Try again when less DDL runs, or raise --attempts.",
            Self::Moved(_) => {
                "Try again when less DDL runs, raise --attempts, or leave --strict out to get \
                 everything else."
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// Whether a lock was not to be had in time: that of a catalog, since what waits for
    /// those of relations tells this itself.
    pub(super) fn is_late(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_late(),
            Self::Server(error) => error.is_lock_failure(),
            _ => false,
        }
    }
}

/// Why an attempt has ended without a dump.
pub enum AttemptEnd {
    /// Another attempt, on a new snapshot, may succeed.
    Over(Box<Over>),
    /// No attempt can succeed.
    Fatal(Error),
}

/// An attempt that DDL, or a lock held for long, has brought to its end.
pub struct Over {
    /// For the report.
    pub outcome: AttemptOutcome,
    /// Relations that had moved.
    pub changes: Vec<Change>,
    /// What to say if this was the last attempt.
    pub cause: Error,
}

impl AttemptEnd {
    /// An attempt that ended before anything was compared.
    pub fn over(outcome: AttemptOutcome, cause: Error) -> Self {
        Self::Over(Box::new(Over { outcome, changes: Vec::new(), cause }))
    }

    /// An attempt that ended because relations had moved.
    pub fn moved(changes: Vec<Change>) -> Self {
        let names = changes
            .iter()
            .filter(|change| !change.harmless)
            .map(|change| {
                format!("{}.{} ({})", change.schema, change.name, change.reasons.join(", "))
            })
            .collect();
        let (outcome, cause) = (AttemptOutcome::Moved, Error::Moved(names));
        Self::Over(Box::new(Over { outcome, changes, cause }))
    }

    /// Adds who stands in front of a catalog, if that is why the attempt has ended, as far as
    /// another session can still find it out.
    pub fn naming_blockers(mut self, session: &mut Session) -> Self {
        if let Self::Over(over) = &mut self
            && let Error::CatalogBlocked { blockers, .. } = &mut over.cause
            && blockers.is_empty()
        {
            let found = session.blockers_of_catalogs().unwrap_or_default();
            *blockers = found.iter().map(ToString::to_string).collect();
        }
        self
    }
}

/// What a stage's `?` meets. No retry can mend it, unless somebody had a catalog for himself.
macro_rules! fatal {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for AttemptEnd {
            fn from(error: $error) -> Self {
                let error = Error::from(error);
                if error.is_late() {
                    let (blockers, source) = (Vec::new(), Box::new(error));
                    let cause = Error::CatalogBlocked { blockers, source };
                    return Self::over(AttemptOutcome::LockTimeout, cause);
                }
                Self::Fatal(error)
            }
        })+
    };
}

fatal!(Error, connect::Error, server::Error, selection::Error, ProgramError, TocError);

fn list(blockers: &[String]) -> String {
    if blockers.is_empty() { String::new() } else { format!(": {}", blockers.join("; ")) }
}

fn relations(count: usize) -> String {
    if count == 1 { "1 relation".into() } else { format!("{count} relations") }
}
