//! `ledger`: what the extension has recorded, for backup tools that do not speak SQL.
//!
//! Every command is one call of the extension. What is more than that: a consumer's bookmark is
//! looked up by its name, the files that exist are found, and `begin` can hold its session while
//! another command makes the backup.

mod answer;
mod error;
mod given;
mod segments;
mod served;
mod table;

use std::ffi::OsString;

pub use self::answer::Answer;
use self::answer::{Told, Void};
pub use self::error::Error;
pub use self::given::Given;
use crate::connect::Target;
use crate::server::{self, Begun, Ledger, Session};

/// What is asked, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database.
    pub target: Target,
    /// What is asked.
    pub action: Action,
}

/// What can be asked.
#[derive(Clone, Debug)]
pub enum Action {
    /// Whether the ledger records, and since when.
    Status,
    /// Takes a bookmark.
    Bookmark,
    /// What is void.
    Since(Since),
    /// Which backup tools there are.
    Consumers,
    /// Makes one known.
    Register {
        /// Its name.
        consumer: String,
    },
    /// Begins a backup.
    Begin {
        /// For whom.
        consumer: String,
        /// Holds the session while this runs, and ends the backup if it succeeds. Empty: does not.
        command: Vec<OsString>,
    },
    /// Ends it.
    End {
        /// For whom it has begun.
        consumer: String,
        /// The bookmark that it began with.
        bookmark: Given,
    },
    /// Forgets a backup tool.
    Drop {
        /// Its name.
        consumer: String,
    },
    /// Removes what nobody needs any more.
    Prune,
}

/// Which files are asked for.
#[derive(Clone, Debug)]
pub struct Since {
    /// From when on.
    pub base: Base,
    /// Until when; `None`: until now.
    pub upto: Option<Given>,
    /// List the files that exist, too.
    pub segments: bool,
}

/// The bookmark of a backup.
#[derive(Clone, Debug)]
pub enum Base {
    /// The bookmark itself.
    Bookmark(Given),
    /// That of a consumer's last backup.
    Consumer(String),
}

/// Does what is asked.
///
/// # Errors
///
/// Whatever keeps it from being done. Before anything is connected: a bookmark that cannot be
/// read.
pub fn run(options: &Options) -> Result<Answer, Error> {
    match &options.action {
        Action::Begin { command, .. } if !command.is_empty() => {
            act(options).map_err(Error::for_command)
        }
        _ => act(options),
    }
}

fn act(options: &Options) -> Result<Answer, Error> {
    let target = &options.target;
    match &options.action {
        Action::Status => ask(target, STATUS, Ledger::status, Told::Status),
        Action::Bookmark => ask(target, BOOKMARK, Ledger::bookmark, Told::Bookmark),
        Action::Since(since) => {
            let (ledger, void) = void(target, since)?;
            Ok(Answer::new(&ledger, Told::Void(void)))
        }
        Action::Consumers => ask(target, CONSUMERS, Ledger::consumers, Told::Consumers),
        Action::Register { consumer } => {
            let told = |()| Told::Registered { consumer: consumer.clone() };
            ask(target, REGISTER, |ledger| ledger.register(consumer), told)
        }
        Action::Begin { consumer, command } => {
            let mut ledger = connect(target)?;
            let told = served::run(&mut ledger, consumer, command)?;
            Ok(Answer::new(&ledger, told))
        }
        Action::End { consumer, bookmark } => {
            let bookmark = bookmark.read()?;
            let mut ledger = connect(target)?;
            end(&mut ledger, consumer, &bookmark)?;
            Ok(Answer::new(&ledger, Told::Ended { consumer: consumer.clone() }))
        }
        Action::Drop { consumer } => {
            let told = |()| Told::Dropped { consumer: consumer.clone() };
            ask(target, DROP, |ledger| ledger.drop_consumer(consumer), told)
        }
        Action::Prune => ask(target, PRUNE, Ledger::prune, |rows| Told::Pruned { rows }),
    }
}

// What each call takes, as GRANT names it. All take USAGE on the schema besides.
const STATUS: &str = "EXECUTE ON FUNCTION stillpoint.status()";
const BOOKMARK: &str = "EXECUTE ON FUNCTION stillpoint.bookmark()";
const SINCE: &str = "EXECUTE ON FUNCTION stillpoint.invalidated_since(text)";
const BETWEEN: &str = "EXECUTE ON FUNCTION stillpoint.invalidated_between(text, text)";
const LIST: &str = "EXECUTE ON FUNCTION pg_catalog.pg_ls_dir(text, boolean, boolean)";
const CONSUMERS: &str = "SELECT ON stillpoint.consumers";
const REGISTER: &str = "EXECUTE ON FUNCTION stillpoint.register_consumer(text)";
const BEGIN: &str = "EXECUTE ON FUNCTION stillpoint.begin_backup(text)";
const END: &str = "EXECUTE ON FUNCTION stillpoint.end_backup(text, text)";
const DROP: &str = "EXECUTE ON FUNCTION stillpoint.drop_consumer(text)";
const PRUNE: &str = "EXECUTE ON FUNCTION stillpoint.prune()";

fn connect(target: &Target) -> Result<Ledger, Error> {
    let (client, _) = target.connect_any()?;
    let opened = Ledger::open(Session::start(client)?)?;
    opened.map_err(|(unusable, place)| Error::Unusable { unusable, place })
}

/// What is one call and no more.
fn ask<T>(
    target: &Target,
    privilege: &'static str,
    asked: impl FnOnce(&mut Ledger) -> Result<T, server::Error>,
    told: impl FnOnce(T) -> Told,
) -> Result<Answer, Error> {
    let mut ledger = connect(target)?;
    let told = told(call(&mut ledger, privilege, asked)?);
    Ok(Answer::new(&ledger, told))
}

fn call<T>(
    ledger: &mut Ledger,
    privilege: &'static str,
    asked: impl FnOnce(&mut Ledger) -> Result<T, server::Error>,
) -> Result<T, Error> {
    asked(ledger).map_err(|source| {
        let role = ledger.place().role.clone();
        Error::Refused { source, privilege, role }
    })
}

fn void(target: &Target, since: &Since) -> Result<(Ledger, Void), Error> {
    let upto = since.upto.as_ref().map(Given::read).transpose()?;
    let (mut ledger, base, consumer) = match &since.base {
        Base::Bookmark(given) => {
            let base = given.read()?;
            (connect(target)?, base, None)
        }
        Base::Consumer(name) => {
            let mut ledger = connect(target)?;
            let base = base_of(&mut ledger, name)?;
            (ledger, base, Some(name.clone()))
        }
    };
    let privilege = if upto.is_some() { BETWEEN } else { SINCE };
    let files = call(&mut ledger, privilege, |ledger| ledger.invalidated(&base, upto.as_deref()))?;
    let segments = if since.segments {
        let (directories, numbers): (Vec<_>, Vec<_>) =
            files.iter().map(|file| segments::split(&file.path)).unzip();
        let found = call(&mut ledger, LIST, |ledger| ledger.files_like(&directories, &numbers))?;
        Some(segments::of_each(&files, &found))
    } else {
        None
    };
    Ok((ledger, Void { consumer, base, upto, files, segments }))
}

/// The bookmark of a consumer's last backup.
fn base_of(ledger: &mut Ledger, name: &str) -> Result<String, Error> {
    let name = name.to_owned();
    match call(ledger, CONSUMERS, |ledger| ledger.consumer(&name))? {
        None => Err(Error::NoConsumer { name }),
        Some(consumer) if consumer.lost => Err(Error::Lost { name }),
        Some(consumer) => consumer.bookmark.ok_or(Error::NoBackup { name }),
    }
}

/// Begins a backup, and warns if it has to be a full one.
fn begin(ledger: &mut Ledger, consumer: &str) -> Result<Begun, Error> {
    let begun = call(ledger, BEGIN, |ledger| ledger.begin_backup(consumer))?;
    if !begun.complete {
        let reason = begun.reason.as_deref().unwrap_or("take a full backup");
        tracing::warn!("consumer \"{consumer}\" cannot build on its last backup: {reason}");
    }
    Ok(begun)
}

fn end(ledger: &mut Ledger, consumer: &str, bookmark: &str) -> Result<(), Error> {
    call(ledger, END, |ledger| ledger.end_backup(consumer, bookmark))
}

/// Values for tests.
#[cfg(test)]
mod sample {
    use crate::server::VoidFile;

    /// A file that VACUUM FULL has replaced.
    pub fn void(path: &str) -> VoidFile {
        VoidFile {
            path: path.to_owned(),
            tablespace: 1663,
            filenode: 16384,
            relation: 16385,
            relation_name: "t".to_owned(),
            effects: vec!["announced".to_owned(), "replaced".to_owned()],
            commands: vec!["VACUUM".to_owned()],
            first_at: "2026-11-30T16:45:12.123456Z".to_owned(),
            last_at: "2026-11-30T16:45:13.654321Z".to_owned(),
        }
    }
}
