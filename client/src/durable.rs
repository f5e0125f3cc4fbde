//! Files that are there after a crash, whole, or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// What could not be done, and to which file.
#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    /// Making a new file, which must not be there before.
    #[error("could not create file \"{}\": {source}", .path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Writing to it.
    #[error("could not write file \"{}\": {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Bringing it to the disk. What the disk holds then is unknown.
    #[error("could not synchronize \"{}\" to disk: {source}", .path.display())]
    Sync {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Opening a directory.
    #[error("could not open directory \"{}\": {source}", .path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Giving it its final name.
    #[error("could not rename \"{}\" to \"{}\": {source}", .from.display(), .to.display())]
    Rename {
        /// The name it has.
        from: PathBuf,
        /// The name it was to have.
        to: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The final name is taken.
    #[error("could not rename \"{}\" to \"{}\": the latter exists", .from.display(), .to.display())]
    Exists {
        /// The name it has.
        from: PathBuf,
        /// The name it was to have.
        to: PathBuf,
    },
}

/// Writes `bytes` to a new file of this name and syncs it, but not its directory entry.
pub fn create(path: &Path, bytes: &[u8]) -> Result<(), DurableError> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|source| DurableError::Create { path: path.to_owned(), source })?;
    file.write_all(bytes)
        .map_err(|source| DurableError::Write { path: path.to_owned(), source })?;
    sync(&file, path)
}

/// Renames a synced file over another, durably.
pub fn rename_over(from: &Path, to: &Path) -> Result<(), DurableError> {
    fs::rename(from, to).map_err(|source| DurableError::Rename {
        from: from.to_owned(),
        to: to.to_owned(),
        source,
    })?;
    sync_directory(parent(to))
}

/// Gives a synced file or directory its final name, durably, and fails if that name is taken:
/// not even an empty directory that somebody made in the meantime is replaced.
pub fn publish(from: &Path, to: &Path) -> Result<(), DurableError> {
    let exists = || DurableError::Exists { from: from.to_owned(), to: to.to_owned() };
    let failed = |source: io::Error| DurableError::Rename {
        from: from.to_owned(),
        to: to.to_owned(),
        source,
    };
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Err(exists()),
        // Not every file system can (network ones, mostly); then look first.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            if to.symlink_metadata().is_ok() {
                return Err(exists());
            }
            fs::rename(from, to).map_err(failed)?;
        }
        Err(error) => return Err(failed(error.into())),
    }
    // A failure must leave nothing that looks whole.
    sync_directory(parent(to)).inspect_err(|_| drop(fs::rename(to, from)))
}

/// A directory whose contents will be brought to the disk by one call, when all is written.
///
/// It is opened before the first file is written: the kernel reports a write that failed in the
/// background to descriptors that were open at that time, and only once to others.
#[derive(Debug)]
pub struct Tree {
    path: PathBuf,
    directory: File,
}

impl Tree {
    /// Opens it. Call this before anything is written.
    pub fn open(path: &Path) -> Result<Self, DurableError> {
        let directory = File::open(path)
            .map_err(|source| DurableError::Open { path: path.to_owned(), source })?;
        Ok(Tree { path: path.to_owned(), directory })
    }

    /// Syncs the file system that the directory is on, which for ten thousand files is some
    /// thousand times cheaper than a call for each.
    #[cfg(target_os = "linux")]
    pub fn sync(&self) -> Result<(), DurableError> {
        match rustix::fs::syncfs(&self.directory) {
            Ok(()) => Ok(()),
            Err(Errno::NOSYS | Errno::OPNOTSUPP) => sync_each(&self.path),
            Err(error) => Err(DurableError::Sync { path: self.path.clone(), source: error.into() }),
        }
    }

    /// Syncs every file below the directory, and the directory.
    #[cfg(not(target_os = "linux"))]
    pub fn sync(&self) -> Result<(), DurableError> {
        sync_each(&self.path)?;
        sync(&self.directory, &self.path)
    }
}

/// Syncs a directory and what is below it, file by file.
fn sync_each(directory: &Path) -> Result<(), DurableError> {
    let failed = |source| DurableError::Open { path: directory.to_owned(), source };
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if entry.file_type().map_err(failed)?.is_dir() {
            sync_each(&path)?;
        } else {
            let file = File::open(&path)
                .map_err(|source| DurableError::Sync { path: path.clone(), source })?;
            sync(&file, &path)?;
        }
    }
    sync_directory(directory)
}

/// Makes the names in a directory durable.
pub fn sync_directory(path: &Path) -> Result<(), DurableError> {
    let directory =
        File::open(path).map_err(|source| DurableError::Open { path: path.to_owned(), source })?;
    sync(&directory, path)
}

fn sync(file: &File, path: &Path) -> Result<(), DurableError> {
    file.sync_all().map_err(|source| DurableError::Sync { path: path.to_owned(), source })
}

/// The name with something appended to it: `NAME.partial` is beside `NAME`, whatever dots that
/// has, and also where the user wrote `NAME/`.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path.components().as_path());
    name.push(suffix);
    PathBuf::from(name)
}

/// The directory that holds the name; a bare name is in the current one.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    #[test]
    fn a_new_file_does_not_overwrite_an_old_one() {
        let directory = directory();
        let path = directory.path().join("a");
        create(&path, b"first").expect("a new file");
        let error = create(&path, b"second").expect_err("it exists");
        assert!(error.to_string().starts_with("could not create file \""), "{error}");
        assert_eq!(fs::read(&path).expect("the file"), b"first");
    }

    #[test]
    fn publishing_never_replaces_anything() {
        let directory = directory();
        let (from, to) = (directory.path().join("a.partial"), directory.path().join("a"));
        fs::create_dir(&from).expect("a directory");
        fs::write(from.join("file"), b"x").expect("a file");
        fs::create_dir(&to).expect("an empty directory");
        let error = publish(&from, &to).expect_err("it exists");
        assert!(matches!(error, DurableError::Exists { .. }), "{error}");
        assert!(from.join("file").exists());

        fs::remove_dir(&to).expect("it is empty");
        publish(&from, &to).expect("the name is free");
        assert!(to.join("file").exists());
        assert!(!from.exists());
    }

    #[test]
    fn a_tree_is_synced_by_either_way() {
        let directory = directory();
        let tree = Tree::open(directory.path()).expect("a directory");
        fs::create_dir(directory.path().join("below")).expect("a directory");
        fs::write(directory.path().join("below/file"), b"x").expect("a file");
        tree.sync().expect("synced");
        sync_each(directory.path()).expect("synced");
    }

    #[test]
    fn a_bare_name_lies_in_the_current_directory() {
        assert_eq!(parent(Path::new("name")), Path::new("."));
        assert_eq!(parent(Path::new("/x/name")), Path::new("/x"));
        assert_eq!(with_suffix(Path::new("x/v1.5"), ".partial"), Path::new("x/v1.5.partial"));
        assert_eq!(with_suffix(Path::new("x/v1/"), ".partial"), Path::new("x/v1.partial"));
    }
}
