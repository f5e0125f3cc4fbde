//! The export: what was verified is read, compressed, checksummed and written.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use stillpoint_check::Oid;

use super::check::{Checked, Defined, moved};
use super::lock::{Locked, Worker};
use super::stop::{Alarm, Stop};
use super::{AttemptEnd, Error, Options, Timings};
use crate::archive::{Toc, data_file_name};
use crate::codec::Encoder;
use crate::manifest::{Algorithm, Change, FileRecord};
use crate::server::{self, RelationRow, Rows, Session};

/// How often the workers are told to stop, if they are to.
const CANCEL_INTERVAL: Duration = Duration::from_millis(250);

/// What may be exported: every table holds what the snapshot promises, or is left out.
pub struct Verified {
    locked: Locked,
    left_out: HashSet<Oid>,
    changes: Vec<Change>,
}

/// The rows are in the archive's directory.
pub struct Exported {
    locked: Locked,
    changes: Vec<Change>,
    left_out: HashSet<Oid>,
    /// Files with the tables that they are of.
    files: Vec<(Oid, FileRecord)>,
    /// What could not be read by its name, and what the server said.
    unread: Vec<(Oid, Error)>,
}

/// Everything is in the archive's directory, the table of contents in memory.
pub struct Completed {
    pub toc: Toc,
    pub files: Vec<FileRecord>,
    pub changes: Vec<Change>,
    pub left_out: HashSet<Oid>,
}

impl Checked {
    /// Takes the tables that moved out of what is to be exported. Without any, all of it is.
    pub fn verified(self) -> Verified {
        let left_out = moved(&self.changes);
        Verified { locked: self.locked, left_out, changes: self.changes }
    }
}

impl Verified {
    /// Reads every verified table into a file of its own, largest first. With `leave_out`, one
    /// whose name has come to mean nothing, or something else, does not end the export.
    pub fn export(
        mut self,
        options: &Options,
        directory: &Path,
        leave_out: bool,
        stop: &Stop,
        timings: &mut Timings,
    ) -> Result<Exported, AttemptEnd> {
        let start = Instant::now();
        let export =
            Export { options, directory, encoding: self.locked.0.encoding, leave_out, stop };
        let left_out = &self.left_out;
        let (running, ended) = mpsc::channel::<()>();
        let results: Vec<Result<Share, Error>> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .locked
                .0
                .workers
                .iter_mut()
                .map(|worker| {
                    let Worker { session, relations, .. } = worker;
                    let tables = relations.iter().rev();
                    let tables = tables.filter(|row| !left_out.contains(&row.relation));
                    let running = running.clone();
                    scope.spawn(move || {
                        let _running = running;
                        let alarm = Alarm::new(|| stop.set());
                        let share = export.all(session, tables).map_err(|error| {
                            // Before it closes, the connection takes in all that the server
                            // still sends: of a large table that is a lot.
                            let was_set = stop.is_set();
                            stop.set();
                            // What fails when all are stopped fails because of that.
                            if was_set { Error::Stopped } else { error }
                        })?;
                        alarm.call_off();
                        Ok(share)
                    })
                })
                .collect();
            drop(running);
            // Nothing is ever sent: the last thread that ends closes the channel.
            while ended.recv_timeout(CANCEL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if stop.is_set() {
                    stop.cancel();
                }
            }
            threads.into_iter().map(super::join).collect()
        });
        timings.export += start.elapsed();
        let mut all = Share::default();
        let mut stopped = None;
        for share in results {
            match share {
                Ok(share) => {
                    all.files.extend(share.files);
                    all.unread.extend(share.unread);
                }
                Err(error @ Error::Stopped) => stopped = Some(error),
                Err(error) => return Err(self.locked.explain(error)),
            }
        }
        if let Some(error) = stopped {
            return Err(error.into());
        }
        let Self { locked, left_out, changes } = self;
        let Share { files, unread } = all;
        Ok(Exported { locked, changes, left_out, files, unread })
    }
}

impl Exported {
    /// Checks the tables once more while their locks are still held: a schema that was renamed
    /// under a lock has made a name mean another table. What `pg_dump` reads meanwhile plays no
    /// part: names are compared when it has ended.
    pub fn check_again(mut self, timings: &mut Timings) -> Result<Rechecked, AttemptEnd> {
        let start = Instant::now();
        let late = self.locked.changes()?;
        timings.recheck += start.elapsed();
        let moved_late: HashSet<Oid> = moved(&late).difference(&self.left_out).copied().collect();
        let mut unread = std::mem::take(&mut self.unread).into_iter();
        if let Some((_, error)) = unread.find(|(relation, _)| !moved_late.contains(relation)) {
            // It has not moved: the server's complaint was a real one.
            return Err(AttemptEnd::Fatal(error));
        }
        self.changes = with_late(std::mem::take(&mut self.changes), late);
        Ok(Rechecked { exported: self, moved_late })
    }

    /// Takes tables out of the archive whose rows have been written already.
    fn remove(&mut self, tables: &HashSet<Oid>, directory: &Path) -> Result<(), Error> {
        for (_, file) in self.files.extract_if(.., |(table, _)| tables.contains(table)) {
            let path = directory.join(file.name);
            std::fs::remove_file(&path).map_err(|source| Error::File {
                doing: "remove",
                path,
                source,
            })?;
        }
        Ok(())
    }
}

/// Adds to what had moved before the export what the check after it has found. Of a relation
/// that both know the earlier word stays, unless that was a harmless one: it must not hide that
/// the relation has moved since.
fn with_late(mut changes: Vec<Change>, late: Vec<Change>) -> Vec<Change> {
    changes.retain(|known| {
        !known.harmless || !late.iter().any(|change| change.relation == known.relation)
    });
    for change in late {
        if !changes.iter().any(|known| known.relation == change.relation) {
            changes.push(change);
        }
    }
    changes
}

/// What the check after the export found.
pub struct Rechecked {
    exported: Exported,
    moved_late: HashSet<Oid>,
}

impl Rechecked {
    /// Whether rows have been written that may be another table's.
    pub fn has_moved(&self) -> bool {
        !self.moved_late.is_empty()
    }

    /// What moved, before and during the export.
    pub fn into_changes(self) -> Vec<Change> {
        self.exported.changes
    }

    /// Checks the sequences once more, and completes the table of contents. What moved is left
    /// out of it, if that may be. The sessions end with this, and with them their locks.
    pub fn complete(
        self,
        defined: Defined,
        directory: &Path,
        leave_out: bool,
        timings: &mut Timings,
    ) -> Result<Completed, AttemptEnd> {
        let Self { mut exported, moved_late } = self;
        let Defined { mut valued, changes: of_sequences } = defined;
        let start = Instant::now();
        let late = valued.changes()?;
        timings.recheck += start.elapsed();
        let of_sequences = with_late(of_sequences, late);
        let moved_sequences = moved(&of_sequences);

        exported.remove(&moved_late, directory)?;
        let Exported { locked, mut changes, mut left_out, files, .. } = exported;
        changes.extend(of_sequences);
        changes.sort_by_key(|change| change.relation);
        if !moved_sequences.is_empty() && !leave_out {
            return Err(AttemptEnd::moved(changes));
        }
        left_out.extend(moved_late);
        left_out.extend(moved_sequences);
        let rows = locked.0.workers.iter().flat_map(|worker| &worker.relations);
        valued.add_tables(rows.filter(|row| !left_out.contains(&row.relation)).collect())?;
        valued.add_values(&left_out)?;
        let files = files.into_iter().map(|(_, file)| file).collect();
        Ok(Completed { toc: valued.toc, files, changes, left_out })
    }
}

/// What one worker has read.
#[derive(Default)]
struct Share {
    files: Vec<(Oid, FileRecord)>,
    unread: Vec<(Oid, Error)>,
}

/// What all workers go by.
#[derive(Clone, Copy)]
struct Export<'a> {
    options: &'a Options,
    directory: &'a Path,
    encoding: &'a str,
    leave_out: bool,
    stop: &'a Stop,
}

impl Export<'_> {
    fn all<'r>(
        self,
        session: &mut Session,
        tables: impl Iterator<Item = &'r RelationRow>,
    ) -> Result<Share, Error> {
        let mut encoder = Encoder::new(self.options.compression).map_err(|source| Error::File {
            doing: "compress into",
            path: self.directory.to_owned(),
            source,
        })?;
        let mut share = Share::default();
        if !self.leave_out {
            let mut copies = session.copies(tables, self.encoding);
            while let Some((row, rows)) = copies.next() {
                share.files.push((row.relation, self.one(row, rows, &mut encoder)?));
            }
            return Ok(share);
        }
        // Each in a savepoint of its own: one that fails costs only itself.
        for row in tables {
            session.savepoint()?;
            match self.one(row, session.copy(row, self.encoding), &mut encoder) {
                Ok(file) => {
                    session.release_savepoint()?;
                    share.files.push((row.relation, file));
                }
                Err(Error::Rows { source, relation }) if source.is_moved_name() => {
                    session.undo_to_savepoint();
                    share.unread.push((row.relation, Error::Rows { source, relation }));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(share)
    }

    /// A file that is not finished goes away again: rows of another table may be in it, which
    /// the name has come to mean.
    fn one(
        self,
        row: &RelationRow,
        rows: Result<Rows<'_>, server::Error>,
        encoder: &mut Encoder,
    ) -> Result<FileRecord, Error> {
        let name = data_file_name(row.relation) + self.options.compression.codec().extension();
        let path = &self.directory.join(&name);
        let in_file = |doing| move |source| Error::File { doing, path: path.clone(), source };
        let in_rows = |source: server::Error| Error::Rows {
            relation: format!("table {}", row.quoted()),
            source,
        };
        let mut rows = rows.map_err(in_rows)?;
        let file = create_new(path).map_err(in_file("create file"))?;
        let unfinished = Alarm::new(|| {
            // Where that fails, what is in nobody's list is found before the archive gets its name.
            let _ = std::fs::remove_file(path);
        });
        let mut writer = encoder.start(file).map_err(in_file("write file"))?;
        loop {
            if self.stop.is_set() {
                return Err(Error::Stopped);
            }
            let Some(bytes) = rows.next().map_err(in_rows)? else { break };
            writer.write_all(&bytes).map_err(in_file("write file"))?;
        }
        let (written, _) = writer.finish().map_err(in_file("write file"))?;
        unfinished.call_off();
        Ok(FileRecord {
            name,
            schema: Some(row.schema.clone()),
            relation: Some(row.name.clone()),
            rows: Some(written.rows),
            bytes: written.bytes,
            stored_bytes: written.stored_bytes,
            algorithm: Algorithm::Xxh3,
            checksum: written.checksum,
        })
    }
}

fn create_new(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(relation: Oid, reason: &str, harmless: bool) -> Change {
        Change {
            relation,
            schema: "public".into(),
            name: format!("t{relation}"),
            reasons: vec![reason.into()],
            rows_kept: false,
            harmless,
            ancestors: Vec::new(),
        }
    }

    #[test]
    fn what_moved_during_the_export_is_not_hidden_by_what_was_harmless_before() {
        let early = vec![change(1, "replaced", false), change(2, "attached", true)];
        let late = vec![
            change(1, "renamed", false),
            change(2, "renamed", false),
            change(3, "detached", true),
        ];
        let expected = [
            change(1, "replaced", false),
            change(2, "renamed", false),
            change(3, "detached", true),
        ];
        assert_eq!(with_late(early, late), expected);
    }
}
