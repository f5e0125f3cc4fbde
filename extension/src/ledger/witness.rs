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
//! * the last one has crashed: it is still the last that has started, by two files. Every start of
//!   a server writes `postmaster.opts`, but for single-user mode, so that file must be the one that
//!   was noted. And whatever recovers the data from the crash takes away what lies in
//!   `pg_snapshots`, so a mark there must still be there.
//!
//! A restored backup and a copy of a crashed server's data have other files, and runs of their own;
//! a copy of what a server has ended well is what the original is, and goes on with its run. A
//! server that replays the WAL of another one does what that one has done, which need not have
//! recorded: it has a run of its own whatever the files say.

use std::cell::Cell;
use std::fs::{File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::gap::Gap;
use crate::fence::control::{Attendant, Control, attend, unique_name};
use crate::fence::transaction::{next_xid, now, pause};
use crate::fence::{ErrorReport, Failure, SqlState, log, warn};

/// In the data directory.
const FILE: &str = "stillpoint.witness";

/// It becomes the former when it is complete.
const NEW_FILE: &str = "stillpoint.witness.new";

/// Whoever changes the file has locked this one.
const LOCK_FILE: &str = "stillpoint.witness.lock";

/// Written by every start of a server that has passed its first checks (`CreateOptsFile()` in
/// postmaster.c).
const STARTED_FILE: &str = "postmaster.opts";

/// A server that recovers empties the directory (`DeleteAllExportedSnapshotFiles()` in snapmgr.c,
/// called by `StartupXLOG()` in xlog.c), in which nobody looks for a file of that name.
const MARK: &str = "pg_snapshots/stillpoint";

/// A server that starts with one of these replays the WAL of another one, or of another time.
const REPLAY_FILES: [&str; 3] = ["backup_label", "recovery.signal", "standby.signal"];

thread_local! {
    /// Whether the file tells of this server. If it could not be written at the start, it may be
    /// that of one from before the gap. Inherited by every process that the server starts.
    static IS_KEPT: Cell<bool> = const { Cell::new(true) };
}

/// What the file says.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Witness {
    version: u32,
    /// The name of the run.
    run: String,
    /// When it began, in microseconds since 2000-01-01.
    since: i64,
    /// Transactions below this number may be older; none if all may be.
    first_xid: Option<u64>,
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
    first_xid: Option<u64>,
}

impl Run {
    /// Whether that transaction has begun in it, so that it can have done nothing unrecorded.
    pub fn is_of(&self, xid: u64) -> bool {
        self.first_xid.is_some_and(|first| xid >= first)
    }
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
    let resumed = resume();
    IS_KEPT.set(resumed.is_ok());
    told(resumed);
    attend(Attendant { started: || told(note_start()), ended: || told(note_end()) });
}

/// Goes on with the run in the file, or begins another.
fn resume() -> io::Result<()> {
    match Witness::read() {
        Ok(witness) if witness.is_of_the_last_server().unwrap_or(false) => Ok(()),
        known => {
            Witness::new().write(true)?;
            if known.is_ok_and(|known| known.has_bookmarks) {
                log("the ledger of stillpoint has a gap: this server is a standby, or its data were \
                     in the hands of another one since it ended"
                    .to_owned());
            }
            Ok(())
        }
    }
}

fn note_start() -> io::Result<()> {
    let _lock = lock()?;
    let mut witness = Witness::read()?;
    witness.started = Some(Started::last()?);
    witness.ended = None;
    witness.first_xid.get_or_insert_with(next_xid);
    witness.write(true)?;
    mark()
}

fn note_end() -> io::Result<()> {
    let control = Control::read()?;
    if !control.is_shut_down() {
        return Ok(());
    }
    let _lock = lock()?;
    // What starts next has nothing to recover: if the rest fails, the mark must not vouch for it.
    unmark()?;
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
        // The server itself recovers where one of its processes has crashed.
        mark()?;
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
/// a crash. `why` is for the log.
pub fn break_off(why: &str) -> Result<(), Failure> {
    let break_off = || {
        let _lock = lock()?;
        let known = Witness::read().ok();
        let is_relied_on = known.as_ref().is_none_or(|witness| witness.has_bookmarks);
        let mut witness = Witness::new();
        witness.first_xid = Some(next_xid());
        witness.started = known.and_then(|witness| witness.started);
        witness.write(is_relied_on)?;
        if is_relied_on {
            log(format!("the ledger of stillpoint has a gap: {why}"));
        }
        Ok(())
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

/// One process at a time changes the file, for a moment. The system lets go of the lock with the
/// process.
fn lock() -> io::Result<File> {
    /// A process that is stopped in the midst of it must not keep all others, and the server from
    /// its end.
    const TRIES: usize = 10_000;

    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(LOCK_FILE)?;
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => pause(),
            Err(TryLockError::Error(cause)) => return Err(cause),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "another process has locked it for too long"))
}

/// Lays the mark that a recovery takes away.
fn mark() -> io::Result<()> {
    if Path::new(MARK).try_exists()? { Ok(()) } else { File::create(MARK).map(drop) }
}

fn unmark() -> io::Result<()> {
    match std::fs::remove_file(MARK) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(cause),
        _ => Ok(()),
    }
}

impl Witness {
    const VERSION: u32 = 1;

    fn new() -> Self {
        Self {
            version: Self::VERSION,
            run: unique_name(),
            since: now(),
            first_xid: None,
            has_bookmarks: false,
            started: None,
            ended: None,
        }
    }

    fn read() -> io::Result<Self> {
        if !IS_KEPT.get() {
            return Err(io::Error::other("it could not be written when the server started"));
        }
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
        for file in REPLAY_FILES {
            if Path::new(file).try_exists()? {
                return Ok(false);
            }
        }
        let control = Control::read()?;
        Ok(match self.ended {
            Some(ended) => control.is_shut_down() && ended == Ended::from(control),
            None => {
                !control.is_shut_down()
                    && self.started.is_some()
                    && self.started == Started::last().ok()
                    && Path::new(MARK).try_exists()?
            }
        })
    }
}

impl From<Witness> for Run {
    fn from(witness: Witness) -> Self {
        Self { name: witness.run, since: witness.since, first_xid: witness.first_xid }
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
