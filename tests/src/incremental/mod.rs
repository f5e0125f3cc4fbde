//! A file-level incremental backup of a running cluster: what reads the ledger, made small.
//!
//! A backup is a directory that is whole in itself: what is kept of the last backup are links to
//! its files. It goes through these steps, and between them lets a test do what it likes:
//!
//! 1. take the bookmarks (`begin_backup()`) in every database with a ledger, and list the files of
//!    the relations there;
//! 2. `pg_backup_start()`;
//! 3. read the ledgers: what is void since the last backup's bookmarks;
//! 4. copy;
//! 5. read the ledgers again, and copy whole what they name anew;
//! 6. `pg_backup_stop()`, and copy the WAL;
//! 7. when all is on the disk, `end_backup()`.
//!
//! A file of the last backup is relied on if its number was in `pg_class` when that was taken, it
//! is not void, and the ledger of its database was read complete. Of such a file the size and the
//! time say whether it is kept, and if not, the LSNs of its pages say which of them are copied.
//! All other files are copied whole. [`Rule`] leaves out one part of this or another, to see what
//! comes of it.

mod contents;
mod copy;
mod files;
mod reader;
mod restore;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use self::copy::{Look, copy_changed_pages, copy_whole, keep, make_durable, write};
use self::files::{Listing, RelationFile};
use self::reader::Reader;
use crate::{Cluster, Session};

pub use self::contents::Contents;

/// By what a file of the last backup is relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The ledger, as it is to be read.
    Ledger,
    /// The ledger, but files count that were not in `pg_class` when the last backup was taken.
    LedgerWithoutList,
    /// The ledger, but whether it is complete is not asked.
    LedgerUnasked,
    /// The size and the time of every file, and the LSNs of its pages.
    SizeAndTime,
}

/// A step that a backup has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The bookmarks are taken and the relations' files listed.
    Begun,
    /// The server is in backup mode.
    Started,
    /// The ledgers are read.
    Read,
    /// Some files are copied, others not.
    Copying,
    /// All files are copied.
    Copied,
    /// What the ledgers have named anew is copied.
    ReadAgain,
}

/// How many files were taken in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Links to the last backup's.
    pub kept: u32,
    /// Files of which some pages were copied.
    pub changed: u32,
    /// Pages of those that were copied.
    pub pages: u64,
    /// Pages of those that were not.
    pub kept_pages: u64,
    /// Files that were copied whole.
    pub whole: u32,
    /// Files that the ledger named when it was read again.
    pub named_anew: u32,
}

/// A backup that has ended.
#[derive(Debug)]
struct Backup {
    directory: PathBuf,
    /// What the server had written before this position was on the disk when files were copied.
    start: u64,
    /// How the files were when they were copied.
    files: BTreeMap<PathBuf, Look>,
    /// The first files of all relations in the databases with a ledger, at the bookmark.
    listed: BTreeSet<PathBuf>,
}

/// Takes backups of a cluster, each on the base of the last.
pub struct Copier<'a> {
    cluster: &'a Cluster,
    rule: Rule,
    home: TempDir,
    readers: Vec<Reader>,
    last: Option<Backup>,
    taken: u32,
}

impl<'a> Copier<'a> {
    /// A backup tool that is new to the ledgers of these databases.
    #[track_caller]
    #[must_use]
    pub fn new(cluster: &'a Cluster, databases: &[&str], rule: Rule) -> Self {
        let home = tempfile::Builder::new().prefix("copier-").tempdir();
        let home = home.expect("a temporary directory can be made");
        let readers = databases
            .iter()
            .map(|database| Reader::new(cluster.session(database), &format!("{rule:?}")))
            .collect();
        Self { cluster, rule, home, readers, last: None, taken: 0 }
    }

    /// Takes a backup; the first one is full. `meanwhile` is called at each [`Moment`].
    #[track_caller]
    pub fn take(&mut self, mut meanwhile: impl FnMut(Moment)) -> Tally {
        self.taken += 1;
        let directory = self.home.path().join(format!("backup-{}", self.taken));
        let mut session = self.cluster.session("postgres");
        let mut listed = BTreeSet::new();
        for reader in &mut self.readers {
            reader.begin();
            listed.extend(reader.list());
        }
        meanwhile(Moment::Begun);
        let start = start_backup(&mut session);
        meanwhile(Moment::Started);
        self.readers.iter_mut().for_each(Reader::read);
        meanwhile(Moment::Read);

        let source = self.cluster.data_directory();
        let listing = Listing::read(source);
        for path in &listing.directories {
            fs::create_dir_all(directory.join(path)).expect("the backup can be written");
        }
        let mut run = Run { source, directory, files: BTreeMap::new(), tally: Tally::default() };
        for (number, path) in listing.files.iter().enumerate() {
            // Often enough to come between any two steps of what runs meanwhile.
            if number % 100 == 50 {
                meanwhile(Moment::Copying);
            }
            let relied_on = self.relied_on(path);
            run.take(path, self.last.as_ref().filter(|_| relied_on));
        }
        meanwhile(Moment::Copied);
        self.copy_named_anew(&mut run);
        meanwhile(Moment::ReadAgain);

        let label = stop_backup(&mut session);
        write(&run.directory.join("backup_label"), label.as_bytes());
        let first = session.text(&format!("SELECT pg_walfile_name('{}')", text_of(start)));
        let last = session.text("SELECT pg_walfile_name(pg_current_wal_lsn())");
        for segment in files::wal_between(source, &first, &last) {
            copy_whole(&source.join(&segment), &run.directory.join(&segment));
        }
        make_durable(&run.directory, &listing.directories);
        self.readers.iter_mut().for_each(Reader::end);
        let Run { directory, files, tally, .. } = run;
        self.last = Some(Backup { directory, start, files, listed });
        tally
    }

    /// Why ledgers did not tell all that the last backup should have known.
    #[must_use]
    pub fn gaps(&self) -> Vec<&str> {
        self.readers.iter().filter_map(Reader::gap).collect()
    }

    /// Starts a server on a copy of the last backup.
    ///
    /// # Panics
    ///
    /// If there is none, or the server does not start.
    #[track_caller]
    #[must_use]
    pub fn restore(&self) -> Cluster {
        let last = self.last.as_ref().expect("a backup was taken");
        Cluster::start_restored(|data| restore::fill(&last.directory, data))
    }

    /// Whether the file is what it was for the last backup, but for what its size and time and its
    /// pages tell.
    fn relied_on(&self, path: &Path) -> bool {
        let Some(last) = &self.last else { return false };
        let Some(file) = RelationFile::of(path) else { return false };
        if self.rule == Rule::SizeAndTime {
            return true;
        }
        let reader = self.readers.iter().find(|reader| reader.database() == file.database);
        let is_void = |reader: &Reader| match self.rule {
            Rule::LedgerUnasked => reader.names(&file.first),
            _ => !reader.is_complete() || reader.names(&file.first),
        };
        let is_listed = self.rule == Rule::LedgerWithoutList || last.listed.contains(&file.first);
        is_listed && reader.is_some_and(|reader| !is_void(reader))
    }

    /// Reads the ledgers again. What they name that has been relied on is copied whole, or is gone
    /// in the meantime.
    fn copy_named_anew(&mut self, run: &mut Run<'_>) {
        let relied_on: Vec<PathBuf> =
            run.files.keys().filter(|path| self.relied_on(path)).cloned().collect();
        self.readers.iter_mut().for_each(Reader::read);
        for path in relied_on {
            if !self.relied_on(&path) {
                run.tally.named_anew += 1;
                run.take_anew(&path);
            }
        }
    }
}

/// A backup that is being taken.
struct Run<'a> {
    source: &'a Path,
    directory: PathBuf,
    files: BTreeMap<PathBuf, Look>,
    tally: Tally,
}

impl Run<'_> {
    /// Takes a file; `base` is a backup whose file is relied on.
    fn take(&mut self, path: &Path, base: Option<&Backup>) {
        let (from, to) = (self.source.join(path), self.directory.join(path));
        let known = base.and_then(|base| Some((base, base.files.get(path)?)));
        // The forks beside the main one do not always show a change by their pages' LSN.
        let known = known.filter(|_| RelationFile::of(path).is_some_and(|file| file.is_main));
        let taken = match known {
            None => copy_whole(&from, &to).inspect(|_| self.tally.whole += 1),
            Some((base, look)) if look.is_unchanged(&from) => {
                self.tally.kept += 1;
                Some(keep(&base.directory.join(path), &to, *look))
            }
            Some((base, _)) => {
                copy_changed_pages(&from, &base.directory.join(path), &to, base.start).map(
                    |(look, pages)| {
                        self.tally.changed += 1;
                        self.tally.pages += pages.copied;
                        self.tally.kept_pages += pages.kept;
                        look
                    },
                )
            }
        };
        // A file that is gone by now is missing in the backup: the WAL says that it goes.
        if let Some(look) = taken {
            self.files.insert(path.to_owned(), look);
        }
    }

    /// Takes a file whole that was taken in another way before.
    fn take_anew(&mut self, path: &Path) {
        fs::remove_file(self.directory.join(path)).expect("the file was taken");
        self.files.remove(path);
        self.take(path, None);
    }
}

/// Begins a backup in the session; gives where the WAL has to be replayed from.
fn start_backup(session: &mut Session) -> u64 {
    let start = if is_old(session) {
        "SELECT pg_start_backup('copier', fast => true, exclusive => false)"
    } else {
        "SELECT pg_backup_start('copier', fast => true)"
    };
    let lsn = session.text(start);
    let (upper, lower) = lsn.split_once('/').expect("a position has two halves");
    let half = |digits| u64::from_str_radix(digits, 16).expect("hexadecimal digits");
    half(upper) << 32 | half(lower)
}

fn text_of(lsn: u64) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff)
}

/// Ends the session's backup; gives the content of `backup_label`.
fn stop_backup(session: &mut Session) -> String {
    // There is no archive to wait for.
    let stop = if is_old(session) {
        "SELECT labelfile FROM pg_stop_backup(exclusive => false, wait_for_archive => false)"
    } else {
        "SELECT labelfile FROM pg_backup_stop(wait_for_archive => false)"
    };
    session.text(stop)
}

/// Whether the functions have their names from before PostgreSQL 15.
fn is_old(session: &mut Session) -> bool {
    session.yes("SELECT current_setting('server_version_num')::int < 150000")
}
