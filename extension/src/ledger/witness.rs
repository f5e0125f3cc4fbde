//! Whether the server has recorded without a gap.
//!
//! A server that runs without the library records nothing, and its sessions leave no sign of that
//! in the database. So a server that runs with it keeps a file in the data directory that names
//! the **run**: a time in which nothing went unrecorded. Whatever could have gone unrecorded
//! begins another run, and bookmarks of different runs cannot be compared.
//!
//! At its start a server goes on with the run that it finds in the file if no other server can
//! have worked on the data since that was written:
//!
//! * the last one has ended well and noted its last checkpoint: it is still the last one, by the
//!   control file; or
//! * the last one has crashed: it is still the last that has started. Every start of a server
//!   writes `postmaster.opts`, so that file must be the one that was noted.
//!
//! A copy of a data directory, a restored backup and a standby have other files, and runs of their
//! own.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::gap::Gap;
use crate::fence::control::{Attendant, Control, attend, unique_name};
use crate::fence::transaction::now;
use crate::fence::{ErrorReport, Failure, SqlState, warn};

/// In the data directory.
const FILE: &str = "stillpoint.witness";

/// It becomes the former when it is complete.
const NEW_FILE: &str = "stillpoint.witness.new";

/// Written by every start of a server that has passed its first checks (`CreateOptsFile()` in
/// postmaster.c).
const STARTED_FILE: &str = "postmaster.opts";

/// What the file says.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Witness {
    version: u32,
    /// The name of the run.
    run: String,
    /// When it began, in microseconds since 2000-01-01.
    since: i64,
    /// Whether a bookmark tells of it.
    has_bookmarks: bool,
    /// The server that has started last, if that is known.
    started: Option<Started>,
    /// How it has ended; `None` while it runs, and after a crash.
    ended: Option<Ended>,
}

/// A time in which nothing went unrecorded.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// When it began, in microseconds since 2000-01-01.
    pub since: i64,
}

/// A start of a server, by the file that it has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Started {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ended {
    state: u32,
    checkpoint: u64,
}

/// Begins to witness, in the server's first process.
pub fn begin() {
    told(resume());
    attend(Attendant { started: || told(note_start()), ended: || told(note_end()) });
}

/// Goes on with the run in the file, or begins another.
fn resume() -> io::Result<()> {
    match Witness::read() {
        Ok(witness) if witness.is_of_the_last_server().unwrap_or(false) => Ok(()),
        _ => Witness::new().write(true),
    }
}

fn note_start() -> io::Result<()> {
    let _lock = lock()?;
    let mut witness = Witness::read()?;
    witness.started = Some(Started::last()?);
    witness.ended = None;
    witness.write(true)
}

fn note_end() -> io::Result<()> {
    let control = Control::read()?;
    if !control.is_shut_down() {
        return Ok(());
    }
    let _lock = lock()?;
    let mut witness = Witness::read()?;
    witness.ended = Some(Ended::from(control));
    witness.write(true)
}

/// The run that goes on.
pub fn run() -> Result<Run, Failure> {
    Witness::read().map(Run::from).map_err(|cause| Gap::NoWitness { cause }.into())
}

/// The run that goes on, of which a bookmark is going to tell.
pub fn rely() -> Result<Run, Failure> {
    let rely = || {
        let _lock = lock()?;
        let mut witness = Witness::read()?;
        if !witness.has_bookmarks {
            witness.has_bookmarks = true;
            witness.write(true)?;
        }
        Ok(Run::from(witness))
    };
    rely().map_err(|cause| Gap::NoWitness { cause }.into())
}

/// Ends the run: something goes unrecorded. Where no bookmark tells of it, that need not survive
/// a crash.
pub fn break_off() -> Result<(), Failure> {
    let break_off = || {
        let _lock = lock()?;
        let known = Witness::read().ok();
        let is_relied_on = known.as_ref().is_none_or(|witness| witness.has_bookmarks);
        let mut witness = Witness::new();
        witness.started = known.and_then(|witness| witness.started);
        witness.write(is_relied_on)
    };
    break_off().map_err(|cause| Gap::NotNoted { cause }.into())
}

/// Tells the server's log of a failure: outside sessions there is nobody else.
fn told(result: io::Result<()>) {
    if let Err(cause) = result {
        let message = format!("could not keep file \"{FILE}\": {cause}");
        let state = SqlState::ERRCODE_IO_ERROR;
        warn(
            ErrorReport::new(state, message, "witness")
                .set_hint("Incremental backups by the ledger will have to begin with a full one."),
        );
    }
}

/// One process at a time changes the file. The system lets go of the lock with the process.
fn lock() -> io::Result<File> {
    let directory = File::open(".")?;
    directory.lock()?;
    Ok(directory)
}

impl Witness {
    const VERSION: u32 = 1;

    fn new() -> Self {
        Self {
            version: Self::VERSION,
            run: unique_name(),
            since: now(),
            has_bookmarks: false,
            started: None,
            ended: None,
        }
    }

    fn read() -> io::Result<Self> {
        let witness: Self = serde_json::from_slice(&std::fs::read(FILE)?)?;
        if witness.version == Self::VERSION {
            return Ok(witness);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "written by another version"))
    }

    fn write(&self, durably: bool) -> io::Result<()> {
        let mut file = File::create(NEW_FILE)?;
        // Whoever may read the data directory may read this.
        let mode = Path::new("PG_VERSION").metadata()?.mode();
        file.set_permissions(Permissions::from_mode(mode & 0o666))?;
        file.write_all(&serde_json::to_vec(self)?)?;
        if durably {
            file.sync_all()?;
        }
        std::fs::rename(NEW_FILE, FILE)?;
        if durably {
            File::open(".")?.sync_all()?;
        }
        Ok(())
    }

    fn is_of_the_last_server(&self) -> io::Result<bool> {
        let control = Control::read()?;
        Ok(match self.ended {
            Some(ended) => control.is_shut_down() && ended == Ended::from(control),
            None => {
                !control.is_shut_down()
                    && self.started.is_some()
                    && self.started == Started::last().ok()
            }
        })
    }
}

impl From<Witness> for Run {
    fn from(witness: Witness) -> Self {
        Self { name: witness.run, since: witness.since }
    }
}

impl Started {
    fn last() -> io::Result<Self> {
        std::fs::metadata(STARTED_FILE).map(Self::from)
    }
}

impl From<Metadata> for Started {
    fn from(file: Metadata) -> Self {
        Self {
            inode: file.ino(),
            bytes: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

impl From<Control> for Ended {
    fn from(control: Control) -> Self {
        Self { state: control.state(), checkpoint: control.checkpoint }
    }
}
