//! `verify`: an archive is read again, every byte of it, and compared with its manifest.
//!
//! Three things must agree: the manifest, the table of contents and the files. All that does not
//! is told in one run, since whoever has a damaged archive wants to know what can be saved.

mod content;
mod crossing;
mod finding;
mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use self::finding::{Damage, Finding};
pub use self::report::{Outcome, Report};
use crate::archive::{TOC_FILE_NAME, Toc};
use crate::manifest::{self, FileRecord, Found, Manifest, ManifestError, Summary};

/// Which archive is verified, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The archive's directory.
    pub directory: PathBuf,
    /// Files that are read in parallel.
    pub jobs: usize,
}

/// Why an archive cannot be verified at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory cannot be read.
    #[error("could not read directory \"{}\": {source}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no manifest to compare with.
    #[error("\"{}\" has no {}, so there is nothing to verify it by", .directory.display(), manifest::FILE_NAME)]
    NoManifest {
        /// The directory.
        directory: PathBuf,
        /// There is a table of contents.
        is_archive: bool,
    },
    /// The manifest is of a version that this one would misread.
    #[error("could not read \"{}\": {source}", .path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// Why.
        source: ManifestError,
    },
}

impl Error {
    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Directory { .. } => None,
            Self::NoManifest { is_archive: true, .. } => Some(
                "Archives that pg_dump has written have none; pg_restore reads them.".to_owned(),
            ),
            Self::NoManifest { is_archive: false, .. } => {
                Some("Name the directory that \"stillpoint dump\" has written.".to_owned())
            }
            Self::Manifest { source, .. } => source.hint(),
        }
    }
}

/// An archive that is being verified.
struct Archive<'a> {
    directory: &'a Path,
    /// What is in the directory, but for the manifest, and whether it is a file.
    present: BTreeMap<String, bool>,
    /// What the manifest names. `None` if it is too damaged to tell.
    manifest: Option<Manifest>,
    toc: Option<Toc>,
}

/// Reads the archive and tells all that is wrong with it.
///
/// # Errors
///
/// Only where there is nothing to compare: damage is no error, but what is looked for.
pub fn run(options: &Options) -> Result<Report, Error> {
    let mut findings = Vec::new();
    let archive = Archive::open(&options.directory, &mut findings)?;
    let expected = archive.expected(&mut findings);
    let checked = check_all(&archive, &expected, options.jobs);
    let mut report = Report::new(options.directory.clone(), archive.summary());
    for file in checked {
        report.add(&file);
        findings.extend(file.findings);
    }
    report.conclude(findings);
    Ok(report)
}

impl<'a> Archive<'a> {
    fn open(directory: &'a Path, findings: &mut Vec<Finding>) -> Result<Self, Error> {
        let mut present = list(directory)
            .map_err(|source| Error::Directory { path: directory.to_owned(), source })?;
        let Some(is_file) = present.remove(manifest::FILE_NAME) else {
            let is_archive = present.contains_key(TOC_FILE_NAME);
            return Err(Error::NoManifest { directory: directory.to_owned(), is_archive });
        };
        let manifest = if is_file {
            read_manifest(&directory.join(manifest::FILE_NAME), findings)?
        } else {
            findings.push(Finding::new(manifest::FILE_NAME, Damage::NotAFile));
            None
        };
        let toc = match present.get(TOC_FILE_NAME) {
            Some(true) => match Toc::read(directory) {
                Ok(toc) => Some(toc),
                Err(error) => {
                    let message = error.reason();
                    findings.push(Finding::new(TOC_FILE_NAME, Damage::Malformed { message }));
                    None
                }
            },
            _ => None,
        };
        Ok(Self { directory, present, manifest, toc })
    }

    fn summary(&self) -> Option<&Summary> {
        self.manifest.as_ref().map(|manifest| &manifest.summary)
    }

    fn records(&self) -> &[FileRecord] {
        self.manifest.as_ref().map_or(&[], |manifest| &manifest.files)
    }
}

/// The names in a directory, and whether each is a regular file.
fn list(directory: &Path) -> io::Result<BTreeMap<String, bool>> {
    fs::read_dir(directory)?
        .map(|entry| {
            let entry = entry?;
            // A symbolic link to a file is as good as the file.
            let is_file = fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file());
            Ok((entry.file_name().to_string_lossy().into_owned(), is_file))
        })
        .collect()
}

fn read_manifest(path: &Path, findings: &mut Vec<Finding>) -> Result<Option<Manifest>, Error> {
    let mut damaged = |damage| findings.push(Finding::new(manifest::FILE_NAME, damage));
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            damaged(Damage::Unreadable { message: error.to_string() });
            return Ok(None);
        }
    };
    match Manifest::find(&bytes) {
        Ok(Found { manifest, intact }) => {
            if !intact {
                damaged(Damage::ManifestChecksum);
            }
            Ok(Some(manifest))
        }
        Err(source @ ManifestError::UnsupportedVersion(_)) => {
            Err(Error::Manifest { path: path.to_owned(), source })
        }
        Err(error) => {
            damaged(Damage::Malformed { message: error.to_string() });
            Ok(None)
        }
    }
}

/// What a file is to hold.
#[derive(Clone, Copy)]
struct Expected<'a> {
    name: &'a str,
    /// The file's line of the manifest.
    record: Option<&'a FileRecord>,
    kind: Kind,
}

/// What a file's content must be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// COPY text with its terminator, maybe compressed.
    Rows,
    /// A large object, maybe compressed.
    LargeObject,
    /// Anything.
    Plain,
}

/// What came of one file.
struct Checked {
    rows: Option<u64>,
    stored_bytes: u64,
    findings: Vec<Finding>,
}

/// Checks all files, the largest first, so that no thread is left alone with one at the end.
fn check_all(archive: &Archive<'_>, expected: &[Expected<'_>], jobs: usize) -> Vec<Checked> {
    let mut order: Vec<&Expected<'_>> = expected.iter().collect();
    order
        .sort_by_key(|file| std::cmp::Reverse(file.record.map_or(0, |record| record.stored_bytes)));
    let next = AtomicUsize::new(0);
    let checked = Mutex::new(Vec::with_capacity(order.len()));
    let work = || {
        while let Some(file) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = content::check(archive.directory, file);
            checked.lock().unwrap_or_else(PoisonError::into_inner).push(result);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (1..jobs.min(order.len()).max(1)).map(|_| scope.spawn(work)).collect();
        work();
        for thread in threads {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    checked.into_inner().unwrap_or_else(PoisonError::into_inner)
}
