//! The files of a data directory, and which of them are a relation's.

use std::fs;
use std::path::{Path, PathBuf};

/// What a server makes anew at its start, or has for itself while it runs.
const CONTENT_LEFT_OUT: [&str; 8] = [
    "pg_wal",
    "pg_replslot",
    "pg_dynshmem",
    "pg_notify",
    "pg_serial",
    "pg_snapshots",
    "pg_stat_tmp",
    "pg_subtrans",
];

const FILES_LEFT_OUT: [&str; 5] =
    ["postmaster.pid", "postmaster.opts", "pg_internal.init", "backup_label", "tablespace_map"];

/// Where it is written what the last checkpoint was.
const CONTROL_FILE: &str = "global/pg_control";

/// What there is to be copied, by paths relative to the data directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) directories: Vec<PathBuf>,
    pub(super) files: Vec<PathBuf>,
}

impl Listing {
    /// Lists a data directory, with the tablespaces in `pg_tblspc`. The content of unlogged
    /// relations is left out: the restored server makes them empty.
    pub(super) fn read(source: &Path) -> Self {
        let mut listing = Self::default();
        listing.add(source, Path::new(""));
        let is_unlogged = |path: &PathBuf| {
            RelationFile::of(path).is_some_and(|file| {
                !file.is_init && source.join(with_suffix(&file.first, "_init")).exists()
            })
        };
        listing.files.retain(|path| !is_unlogged(path));
        // Last, so that nothing that is copied is older than it says.
        listing.files.sort_by_key(|path| (path == Path::new(CONTROL_FILE), path.clone()));
        listing
    }

    fn add(&mut self, source: &Path, directory: &Path) {
        self.directories.push(directory.to_owned());
        if CONTENT_LEFT_OUT.iter().any(|left_out| directory == Path::new(left_out)) {
            if directory == Path::new("pg_wal") {
                self.directories.push(directory.join("archive_status"));
            }
            return;
        }
        // A directory may be gone before it is read: a database that is dropped.
        let Ok(entries) = fs::read_dir(source.join(directory)) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let path = directory.join(&name);
            let name = name.to_string_lossy();
            let Ok(metadata) = fs::metadata(source.join(&path)) else { continue };
            if metadata.is_dir() && name != "pgsql_tmp" {
                self.add(source, &path);
            } else if metadata.is_file()
                && !FILES_LEFT_OUT.contains(&&*name)
                && !is_temporary(&path, &name)
            {
                self.files.push(path);
            }
        }
    }
}

/// `t3_16400`: a file of a temporary relation.
fn is_temporary(path: &Path, name: &str) -> bool {
    (path.starts_with("base") || path.starts_with("pg_tblspc"))
        && name.strip_prefix('t').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// A file of a relation in a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RelationFile {
    pub(super) database: u32,
    /// The first file of the main fork.
    pub(super) first: PathBuf,
    pub(super) is_main: bool,
    pub(super) is_init: bool,
}

impl RelationFile {
    /// What the path says, if it is that of a relation's file and not in `global`.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let directory = path.parent()?;
        let depth = directory.components().count();
        let is_database = (directory.starts_with("base") && depth == 2)
            || (directory.starts_with("pg_tblspc") && depth == 4);
        let database = directory.file_name()?.to_str()?.parse().ok()?;
        let name = path.file_name()?.to_str()?;
        let name = name.split_once('.').map_or(name, |(name, _)| name);
        let (number, fork) = name.split_once('_').map_or((name, None), |(n, f)| (n, Some(f)));
        let is_number = number.parse::<u32>().is_ok();
        (is_database && is_number).then(|| Self {
            database,
            first: directory.join(number),
            is_main: fork.is_none(),
            is_init: fork == Some("init"),
        })
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// The WAL's files from `first` to `last`, by their paths.
pub(super) fn wal_between(source: &Path, first: &str, last: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(source.join("pg_wal")).expect("the WAL is readable");
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| name.len() == first.len() && (first..=last).contains(&name.as_str()))
        .map(|name| Path::new("pg_wal").join(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_relation_are_known_by_their_paths() {
        let of = |path: &str| RelationFile::of(Path::new(path));
        let main = of("base/5/16400").expect("a relation's file");
        assert_eq!((main.database, main.is_main), (5, true));
        for (path, is_main) in [("base/5/16400.1", true), ("base/5/16400_vm", false)] {
            let file = of(path).expect("a relation's file");
            assert_eq!((file.first, file.is_main), (main.first.clone(), is_main), "{path}");
        }
        let elsewhere = of("pg_tblspc/16390/PG_15_202209061/5/16400_init").expect("as well");
        assert!(elsewhere.is_init && elsewhere.first.ends_with("5/16400"));
        for other in ["global/1262", "base/5/PG_VERSION", "base/5/pg_filenode.map", "pg_xact/0000"]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn files_of_temporary_relations_are_known_by_their_names() {
        assert!(is_temporary(Path::new("base/5/t3_16400"), "t3_16400"));
        assert!(!is_temporary(Path::new("base/5/16400"), "16400"));
    }
}
