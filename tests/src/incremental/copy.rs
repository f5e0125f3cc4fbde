//! Copying one file, whole or the pages that have changed.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const PAGE: usize = 8192;

/// The clock of files goes in steps, no longer than this.
const CLOCK_STEP: Duration = Duration::from_millis(50);

/// How a file was when it was about to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    bytes: u64,
    /// Seconds and nanoseconds; none if a later change could bear the same time.
    modified: Option<(i64, i64)>,
}

impl Look {
    /// Looks at a file; none if it is gone.
    fn at(path: &Path) -> Option<Self> {
        let now = SystemTime::now();
        let metadata = found(fs::metadata(path))?;
        let modified = metadata.modified().expect("files have a time here");
        let is_settled = now.duration_since(modified).is_ok_and(|age| age > CLOCK_STEP);
        let modified = is_settled.then(|| (metadata.mtime(), metadata.mtime_nsec()));
        Some(Self { bytes: metadata.len(), modified })
    }

    /// Whether nothing tells that the file has changed since.
    pub(super) fn is_unchanged(&self, path: &Path) -> bool {
        let now = Self::at(path);
        self.modified.is_some()
            && now.is_some_and(|now| (now.bytes, now.modified) == (self.bytes, self.modified))
    }
}

/// How many pages of a file were copied, and how many taken from the last backup.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pages {
    pub(super) copied: u64,
    pub(super) kept: u64,
}

/// Copies a file; none if it is gone.
pub(super) fn copy_whole(from: &Path, to: &Path) -> Option<Look> {
    // Before it is read: what changes meanwhile has another time afterwards.
    let look = Look::at(from)?;
    let content = found(fs::read(from))?;
    write(to, &content);
    Some(look)
}

/// Takes over a file of the last backup.
pub(super) fn keep(base: &Path, to: &Path, look: Look) -> Look {
    fs::hard_link(base, to).expect("a backup lies in one file system");
    look
}

/// Copies the pages of a file that may have changed since the position `since` of the WAL, and
/// takes the others from the last backup's. None if the file is gone.
pub(super) fn copy_changed_pages(
    from: &Path,
    base: &Path,
    to: &Path,
    since: u64,
) -> Option<(Look, Pages)> {
    let look = Look::at(from)?;
    let mut content = found(fs::read(from))?;
    let base = fs::read(base).expect("the last backup is there");
    let mut pages = Pages::default();
    for (page, known) in content.chunks_mut(PAGE).zip(base.chunks(PAGE)) {
        if page.len() == PAGE && known.len() == PAGE && !may_have_changed(page, since) {
            page.copy_from_slice(known);
            pages.kept += 1;
        }
    }
    pages.copied = content.len().div_ceil(PAGE) as u64 - pages.kept;
    write(to, &content);
    Some((look, pages))
}

/// A page without an LSN is one that nobody has logged.
fn may_have_changed(page: &[u8], since: u64) -> bool {
    let half = |at: usize| {
        u64::from(u32::from_ne_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]))
    };
    let lsn = half(0) << 32 | half(4);
    lsn == 0 || lsn >= since
}

/// Writes a new file, to the disk.
pub(super) fn write(path: &Path, content: &[u8]) {
    use std::io::Write as _;
    let written = File::create_new(path).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

/// The files are on the disk; now their names.
pub(super) fn make_durable(backup: &Path, directories: &[PathBuf]) {
    for directory in directories {
        let directory = File::open(backup.join(directory)).and_then(|file| file.sync_all());
        directory.expect("a directory of the backup can be synced");
    }
}

fn found<T>(result: std::io::Result<T>) -> Option<T> {
    match result {
        Ok(found) => Some(found),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("the source cannot be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(lsn: u64, filling: u8) -> Vec<u8> {
        let mut page = vec![filling; PAGE];
        page[..4].copy_from_slice(&((lsn >> 32) as u32).to_ne_bytes());
        page[4..8].copy_from_slice(&(lsn as u32).to_ne_bytes());
        page
    }

    #[test]
    fn pages_are_copied_by_their_lsn_and_the_length_always() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        let position = 7 << 32 | 5;
        let source = [page(position - 1, 1), page(position, 1), page(0, 1), page(1, 1)];
        write(&path("source"), &source.concat());
        write(&path("base"), &[page(9, 2), page(9, 2), page(9, 2)].concat());
        let (_, pages) = copy_changed_pages(&path("source"), &path("base"), &path("to"), position)
            .expect("there");
        assert_eq!((pages.copied, pages.kept), (3, 1));
        let copied = fs::read(path("to")).expect("it was written");
        let expected = [page(9, 2), source[1].clone(), source[2].clone(), source[3].clone()];
        assert_eq!(copied, expected.concat());
    }

    #[test]
    fn a_time_that_may_come_again_tells_nothing() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("file");
        write(&path, b"x");
        let look = Look::at(&path).expect("it is there");
        assert!(look.modified.is_none() && !look.is_unchanged(&path));
        let file = File::options().append(true).open(&path).expect("it is there");
        let earlier = SystemTime::now() - Duration::from_secs(60);
        file.set_modified(earlier).expect("the file is ours");
        let look = Look::at(&path).expect("it is there");
        assert!(look.is_unchanged(&path));
        fs::write(&path, b"y").expect("the file is ours");
        assert!(!look.is_unchanged(&path));
    }
}
