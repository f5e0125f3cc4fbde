//! Why the ledger was not read, or a backup not begun or ended.

use std::io;
use std::path::PathBuf;

use tokio_postgres::error::SqlState;

use crate::connect;
use crate::quote::quote_identifier;
use crate::server::{self, NEEDED_VERSION, Place, Unusable};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] connect::Error),
    /// A session that cannot be used.
    #[error(transparent)]
    Server(#[from] server::Error),
    /// The server refuses what is asked of the ledger.
    #[error("{source}")]
    Refused {
        /// What it says.
        source: server::Error,
        /// The privilege that this takes, as GRANT names it.
        privilege: &'static str,
        /// The role that has asked.
        role: String,
    },
    /// There is no ledger that could be read.
    #[error("{}", why_unusable(.unusable, .place))]
    Unusable {
        /// Why.
        unusable: Unusable,
        /// Where, and for whom.
        place: Place,
    },
    /// A file or standard input cannot be read.
    #[error("could not read the bookmark from {from}: {source}")]
    Unreadable {
        /// What was read.
        from: String,
        /// What the system said.
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("there is no bookmark in {from}")]
    NoBookmark {
        /// What was read.
        from: String,
    },
    /// No consumer has that name.
    #[error("consumer \"{name}\" does not exist")]
    NoConsumer {
        /// The name.
        name: String,
    },
    /// It has not ended a backup yet.
    #[error("consumer \"{name}\" has no backup yet")]
    NoBackup {
        /// Its name.
        name: String,
    },
    /// The ledger does not reach back to its last backup.
    #[error(
        "consumer \"{name}\" is lost: its last backup is older than stillpoint.ledger_retention"
    )]
    Lost {
        /// Its name.
        name: String,
    },
    /// The user's command does not start.
    #[error(
        "could not execute \"{}\": {source}; the backup of consumer \"{consumer}\" is not ended",
        .program.display()
    )]
    Start {
        /// The command.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
        /// For whom a backup has begun.
        consumer: String,
    },
    /// The user's command is done, and the backup cannot be ended.
    #[error("{source}")]
    NotEnded {
        /// Why.
        source: Box<Self>,
        /// For whom it has begun.
        consumer: String,
        /// With which bookmark.
        bookmark: String,
    },
    /// What we were to do for a command of the user's has failed. Its own status is none of ours
    /// then.
    #[error("{0}")]
    ForCommand(Box<Self>),
}

const FULL: &str = "Take a full backup.";

impl Error {
    /// Marks it as one that came before, around or after a command of the user's. One that did
    /// not start has a status of its own.
    pub(super) fn for_command(self) -> Self {
        match self {
            Self::Start { .. } => self,
            _ => Self::ForCommand(Box::new(self)),
        }
    }

    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Connect(error) => error.hint(),
            Self::Server(error) => error.hint().map(str::to_owned),
            Self::Refused { source, privilege, role } => {
                let said = source.hint().map(str::to_owned);
                said.or_else(|| {
                    let denied = source.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE);
                    denied.then(|| grant(privilege, role))
                })
            }
            Self::Unusable { unusable: Unusable::NotInstalled, .. } => Some(
                "A superuser installs it in each database: CREATE EXTENSION stillpoint;".into(),
            ),
            Self::Unusable { unusable: Unusable::Outdated { .. }, .. } => Some(
                "A superuser updates it in each database: ALTER EXTENSION stillpoint UPDATE;"
                    .into(),
            ),
            Self::Unusable { unusable: Unusable::NoUsage, place } => {
                Some(grant("USAGE ON SCHEMA stillpoint", &place.role))
            }
            Self::NoConsumer { .. } => {
                Some("\"stillpoint ledger register\" makes one known.".into())
            }
            Self::NoBackup { .. } | Self::Lost { .. } => Some(FULL.into()),
            Self::NotEnded { source, consumer, bookmark } => source.hint().or_else(|| {
                Some(format!(
                    "The command has succeeded. Unless another backup begins first, this one \
                     can still be ended: stillpoint ledger end {} {}",
                    shell_word(consumer),
                    shell_word(bookmark)
                ))
            }),
            Self::ForCommand(error) => error.hint(),
            Self::Unreadable { .. } | Self::NoBookmark { .. } | Self::Start { .. } => None,
        }
    }
}

fn why_unusable(unusable: &Unusable, place: &Place) -> String {
    let database = &place.database;
    match unusable {
        Unusable::NotInstalled => {
            format!("extension \"stillpoint\" is not installed in database \"{database}\"")
        }
        Unusable::Outdated { version } => format!(
            "extension \"stillpoint\" in database \"{database}\" is of version {version}, and \
             reading the ledger takes version {NEEDED_VERSION} or newer"
        ),
        Unusable::NoUsage => "permission denied for schema stillpoint".to_owned(),
    }
}

fn grant(privilege: &str, role: &str) -> String {
    format!("A superuser can allow it: GRANT {privilege} TO {};", quote_identifier(role))
}

/// A word that a shell takes as it is.
fn shell_word(text: &str) -> String {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "_-./".contains(character);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place { database: "shop".to_owned(), role: "backup role".to_owned() }
    }

    #[track_caller]
    fn assert_told(error: &Error, message: &str, hint: &str) {
        assert_eq!(error.to_string(), message);
        assert_eq!(error.hint().as_deref(), Some(hint));
    }

    #[test]
    fn what_is_missing_in_a_database_is_told_with_the_statement_that_mends_it() {
        let error = |unusable| Error::Unusable { unusable, place: place() };
        assert_told(
            &error(Unusable::NotInstalled),
            "extension \"stillpoint\" is not installed in database \"shop\"",
            "A superuser installs it in each database: CREATE EXTENSION stillpoint;",
        );
        assert_told(
            &error(Unusable::Outdated { version: "0.2.0".to_owned() }),
            "extension \"stillpoint\" in database \"shop\" is of version 0.2.0, and reading the \
             ledger takes version 0.3.0 or newer",
            "A superuser updates it in each database: ALTER EXTENSION stillpoint UPDATE;",
        );
        assert_told(
            &error(Unusable::NoUsage),
            "permission denied for schema stillpoint",
            "A superuser can allow it: GRANT USAGE ON SCHEMA stillpoint TO \"backup role\";",
        );
    }

    #[test]
    fn a_consumer_without_a_usable_backup_is_told_to_take_a_full_one() {
        let name = || "nightly".to_owned();
        assert_told(
            &Error::Lost { name: name() },
            "consumer \"nightly\" is lost: its last backup is older than \
             stillpoint.ledger_retention",
            "Take a full backup.",
        );
        assert_told(
            &Error::NoBackup { name: name() },
            "consumer \"nightly\" has no backup yet",
            "Take a full backup.",
        );
    }

    #[test]
    fn a_backup_that_could_not_be_ended_is_told_with_the_words_that_end_it() {
        let source = Error::NoConsumer { name: "nightly".to_owned() };
        // The hint of the cause goes first: there may be nothing left to be ended.
        let error = Error::NotEnded {
            source: Box::new(source),
            consumer: "nightly".to_owned(),
            bookmark: "{}".to_owned(),
        };
        assert!(error.hint().is_some_and(|hint| hint.contains("register")));
        let source = Error::NoBookmark { from: "standard input".to_owned() };
        let error = Error::NotEnded {
            source: Box::new(source),
            consumer: "it's".to_owned(),
            bookmark: "{\"version\":1}".to_owned(),
        };
        let hint = error.for_command().hint().expect("a hint");
        assert!(hint.ends_with(r#"stillpoint ledger end 'it'\''s' '{"version":1}'"#), "{hint}");
    }
}
