//! The export: what was verified is read, compressed, checksummed and written.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use stillpoint_check::Oid;

use super::check::Checked;
use super::ddl::archive_encoding;
use super::lock::{Locked, Worker};
use super::{AttemptEnd, Error, Options, Timings};
use crate::archive::{DumpId, data_file_name};
use crate::codec::{Encoder, Written};
use crate::manifest::{Algorithm, Change, FileRecord};
use crate::quote::quote_identifier;
use crate::server::{self, RelationRow, Session};

/// What may be exported: every relation holds what the snapshot promises, or is left out.
pub struct Verified {
    locked: Locked,
    left_out: HashSet<Oid>,
    changes: Vec<Change>,
}

/// The rows are in the archive's directory, its table of contents in memory.
pub struct Exported {
    pub locked: Locked,
    pub changes: Vec<Change>,
    pub left_out: HashSet<Oid>,
    pub files: Vec<FileRecord>,
    entries: HashMap<Oid, DumpId>,
    /// What could not be read by its name, and what the server said.
    unread: Vec<(Oid, Error)>,
}

impl Checked {
    /// Takes the relations that moved out of what is to be exported. Without any, all of it is.
    pub fn verified(self) -> Verified {
        let left_out = self.moved();
        Verified { locked: self.locked, left_out, changes: self.changes }
    }
}

/// One file to be written.
struct Task<'a> {
    relation: &'a RelationRow,
    file: String,
}

impl Verified {
    /// Reads every verified relation into a file of its own, largest first. With `leave_out`, one
    /// whose name has come to mean nothing, or something else, does not end the export.
    pub fn export(
        mut self,
        options: &Options,
        directory: &Path,
        leave_out: bool,
        timings: &mut Timings,
    ) -> Result<Exported, AttemptEnd> {
        let start = Instant::now();
        let identity = &self.locked.resolved.snapshot.connected.identity;
        let encoding = archive_encoding(&identity.encoding);
        let extension = options.compression.codec().extension();
        let entries = self.locked.add_tables(&self.left_out)?;

        let stop = AtomicBool::new(false);
        let results: Vec<Result<Share, Error>> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .locked
                .workers
                .iter_mut()
                .map(|worker| {
                    let Worker { session, relations, .. } = worker;
                    let tasks: Vec<Task<'_>> = relations
                        .iter()
                        .rev()
                        .filter_map(|relation| {
                            let id = entries.get(&relation.relation)?;
                            let file = data_file_name(*id) + extension;
                            Some(Task { relation, file })
                        })
                        .collect();
                    let export = Export { options, directory, encoding, leave_out, stop: &stop };
                    scope.spawn(move || {
                        let canceller = session.canceller();
                        let share = export
                            .all(session, &tasks)
                            .inspect_err(|_| export.stop.store(true, Ordering::Relaxed));
                        if export.stop.load(Ordering::Relaxed) {
                            // Before it closes, the connection takes in all that the server
                            // still sends: of a large table that is a lot.
                            canceller.cancel();
                        }
                        share
                    })
                })
                .collect();
            threads.into_iter().map(super::join).collect()
        });
        let mut all = Share::default();
        for share in results {
            match share {
                Ok(share) => {
                    all.files.extend(share.files);
                    all.unread.extend(share.unread);
                }
                Err(error) => return Err(self.locked.explain(error)),
            }
        }
        timings.export = start.elapsed();
        let Self { locked, left_out, changes } = self;
        let Share { files, unread } = all;
        Ok(Exported { locked, changes, left_out, files, entries, unread })
    }
}

impl Exported {
    /// Checks everything once more while the locks are still held: a schema that was renamed
    /// under a lock has made a name mean another table. Gives the relations that moved during
    /// the export.
    pub fn check_again(self, timings: &mut Timings) -> Result<Rechecked, AttemptEnd> {
        let Self { locked, changes, left_out, files, entries, unread } = self;
        let checked = locked.check(&mut timings.recheck)?;
        let moved_late: HashSet<Oid> = checked.moved().difference(&left_out).copied().collect();
        if let Some((_, error)) = unread.into_iter().find(|(it, _)| !moved_late.contains(it)) {
            // It has not moved: the server's complaint was a real one.
            return Err(AttemptEnd::Fatal(error));
        }
        let (locked, changes) = (checked.locked, with_late(changes, checked.changes));
        let unread = Vec::new();
        Ok(Rechecked {
            exported: Self { locked, changes, left_out, files, entries, unread },
            moved_late,
        })
    }

    /// Takes relations out of the archive whose rows have been written already.
    fn remove(&mut self, relations: &HashSet<Oid>, directory: &Path) -> Result<(), AttemptEnd> {
        for relation in relations {
            self.left_out.insert(*relation);
            let Some(id) = self.entries.remove(relation) else { continue };
            self.locked.toc.remove(&[id])?;
            let stem = data_file_name(id);
            if let Some(index) = self.files.iter().position(|file| file.name.starts_with(&stem)) {
                let path = directory.join(self.files.swap_remove(index).name);
                std::fs::remove_file(&path).map_err(|source| Error::File {
                    doing: "remove",
                    path,
                    source,
                })?;
            }
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

    /// Completes the table of contents; what moved late is left out of it.
    pub fn complete(self, directory: &Path) -> Result<Exported, AttemptEnd> {
        let Self { mut exported, moved_late } = self;
        exported.remove(&moved_late, directory)?;
        let left_out = exported.left_out.clone();
        exported.locked.add_values(&left_out)?;
        Ok(exported)
    }
}

/// What one worker has read.
#[derive(Default)]
struct Share {
    files: Vec<FileRecord>,
    unread: Vec<(Oid, Error)>,
}

/// What all workers go by.
#[derive(Clone, Copy)]
struct Export<'a> {
    options: &'a Options,
    directory: &'a Path,
    encoding: &'a str,
    leave_out: bool,
    /// Set when a worker has failed: its error is the one that counts.
    stop: &'a AtomicBool,
}

impl Export<'_> {
    fn all(self, session: &mut Session, tasks: &[Task<'_>]) -> Result<Share, Error> {
        let mut encoder = Encoder::new(self.options.compression).map_err(|source| Error::File {
            doing: "compress into",
            path: self.directory.to_owned(),
            source,
        })?;
        let mut share = Share::default();
        for task in tasks {
            let row = task.relation;
            let written = if self.leave_out {
                session.savepoint()?;
                match self.one(session, task, &mut encoder) {
                    Err(Error::Rows { source, relation }) if source.is_moved_name() => {
                        session.back_to_savepoint()?;
                        share.unread.push((row.relation, Error::Rows { source, relation }));
                        continue;
                    }
                    other => {
                        let written = other?;
                        session.release_savepoint()?;
                        written
                    }
                }
            } else {
                self.one(session, task, &mut encoder)?
            };
            let Some(written) = written else { break };
            share.files.push(FileRecord {
                name: task.file.clone(),
                schema: Some(row.schema.clone()),
                relation: Some(row.name.clone()),
                rows: Some(written.rows),
                bytes: written.bytes,
                stored_bytes: written.stored_bytes,
                algorithm: Algorithm::Xxh3,
                checksum: written.checksum,
            });
        }
        Ok(share)
    }

    /// Gives nothing if it was stopped. No file is made before the server has taken the
    /// statement, which is where it looks up names.
    fn one(
        self,
        session: &mut Session,
        task: &Task<'_>,
        encoder: &mut Encoder,
    ) -> Result<Option<Written>, Error> {
        let (row, path) = (task.relation, &self.directory.join(&task.file));
        let in_file = |doing| move |source| Error::File { doing, path: path.clone(), source };
        let in_rows = |source: server::Error| Error::Rows {
            relation: format!("table {}", row.quoted()),
            source,
        };
        let statement = copy_out_statement(row, self.encoding);
        let mut reader = session.copy_out(&statement).map_err(in_rows)?;
        let file = create_new(path).map_err(in_file("create file"))?;
        let mut writer = encoder.start(file).map_err(in_file("write file"))?;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let bytes = reader
                .fill_buf()
                .map_err(server::Error::reading("read its rows"))
                .map_err(in_rows)?;
            if bytes.is_empty() {
                break;
            }
            writer.write_all(bytes).map_err(in_file("write file"))?;
            let read = bytes.len();
            reader.consume(read);
        }
        let (written, _) = writer.finish().map_err(in_file("write file"))?;
        Ok(Some(written))
    }
}

fn create_new(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// The statement that gives the rows. Like `COPY`, it reads the relation alone and not its
/// children.
fn copy_out_statement(row: &RelationRow, encoding: &str) -> String {
    let columns: Vec<String> = row.columns.iter().map(|name| quote_identifier(name)).collect();
    let columns = columns.join(", ");
    let source = match &row.configuration {
        Some((_, condition)) if !condition.is_empty() => {
            let columns = if columns.is_empty() { "*" } else { &columns };
            format!("(SELECT {columns} FROM ONLY {} {condition})", row.quoted())
        }
        _ if columns.is_empty() => row.quoted(),
        _ => format!("{} ({columns})", row.quoted()),
    };
    let option = if encoding == "SQL_ASCII" { " WITH (ENCODING 'SQL_ASCII')" } else { "" };
    format!("COPY {source} TO STDOUT{option}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: &[&str], condition: Option<&str>) -> RelationRow {
        RelationRow {
            relation: 16384,
            schema: "public".into(),
            name: "t".into(),
            kind: 'r',
            pages: 0,
            columns: columns.iter().map(|&name| name.into()).collect(),
            configuration: condition.map(|condition| (16385, condition.into())),
            owner: "postgres".into(),
        }
    }

    #[track_caller]
    fn assert_statement(row: &RelationRow, expected: &str) {
        assert_eq!(copy_out_statement(row, "UTF8"), expected);
    }

    #[test]
    fn every_shape_of_table_has_its_copy_statement() {
        assert_statement(
            &row(&["id", "a\"b"], None),
            "COPY \"public\".\"t\" (\"id\", \"a\"\"b\") TO STDOUT",
        );
        assert_statement(&row(&[], None), "COPY \"public\".\"t\" TO STDOUT");
        assert_statement(&row(&["id"], Some("")), "COPY \"public\".\"t\" (\"id\") TO STDOUT");
        assert_statement(
            &row(&["id"], Some("WHERE NOT builtin")),
            "COPY (SELECT \"id\" FROM ONLY \"public\".\"t\" WHERE NOT builtin) TO STDOUT",
        );
    }

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

    #[test]
    fn bytes_without_an_encoding_are_not_converted() {
        assert_eq!(
            copy_out_statement(&row(&["id"], None), "SQL_ASCII"),
            "COPY \"public\".\"t\" (\"id\") TO STDOUT WITH (ENCODING 'SQL_ASCII')"
        );
    }
}
