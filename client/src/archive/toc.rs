//! The table of contents of an archive, `toc.dat`: read, added to, written back.
//!
//! `pg_dump` is called without table data, and so writes neither the entries of tables' rows nor
//! those of sequences' values and materialized views' refreshes. They are put in here, as
//! `pg_dump` itself would have written and placed them: `pg_restore` makes no difference then.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;

use libpgdump::format::ArchiveMetadata;
use libpgdump::format::directory;
use libpgdump::{ArchiveData, ArchiveVersion, CompressionAlgorithm, Entry, ObjectType, Section};

use super::error::TocError;
use super::prefix;
use crate::codec::Codec;
use crate::durable::{self, DurableError};

/// The name of the table of contents in an archive's directory.
pub const TOC_FILE_NAME: &str = "toc.dat";

/// The number of an entry, unique in its archive.
pub type DumpId = i32;

/// The first archive version whose header names the compression method, not only a level.
pub(super) const NAMES_COMPRESSION: ArchiveVersion = ArchiveVersion::new(1, 15, 0);

/// What kinds of entries are looked up by their OID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Table,
    Sequence,
    MaterializedView,
}

impl Kind {
    fn of(entry: &Entry) -> Option<Kind> {
        match entry.desc {
            ObjectType::Table => Some(Kind::Table),
            ObjectType::Sequence => Some(Kind::Sequence),
            ObjectType::MaterializedView => Some(Kind::MaterializedView),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Table => "table",
            Kind::Sequence => "sequence",
            Kind::MaterializedView => "materialized view",
        }
    }
}

/// A table of contents in memory.
#[derive(Debug)]
pub struct Toc {
    metadata: ArchiveMetadata,
    /// Positions in the metadata's entries.
    by_oid: HashMap<(Kind, u32), usize>,
    /// The largest number in use, or reserved.
    last_id: DumpId,
    /// Entries to be added to the data section, in the order of their adding.
    data: Vec<Entry>,
    /// Refreshes to be added at the end.
    refreshes: Vec<Entry>,
}

/// An object that has an entry, by which its data can be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpedObject {
    /// The object's OID.
    pub oid: u32,
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
}

/// What an entry of an archive has in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// The rows of a table.
    Rows {
        /// The file's name without the codec's extension.
        file: String,
    },
    /// The list of the files of large objects.
    LargeObjects {
        /// The name of the list.
        file: String,
    },
}

impl Toc {
    /// Reads the table of contents of the archive in a directory, and no data.
    pub fn read(directory: &Path) -> Result<Toc, TocError> {
        let path = directory.join(TOC_FILE_NAME);
        let metadata = fs::read(&path)
            .map_err(libpgdump::Error::from)
            .and_then(|bytes| prefix::check(&bytes))
            .and_then(|()| directory::read_metadata(directory))
            .map_err(|source| TocError::Read { path, source })?;
        let mut by_oid = HashMap::with_capacity(metadata.entries.len());
        let mut last_id = 0;
        for (position, entry) in metadata.entries.iter().enumerate() {
            // Entries refer to numbers that are none's, such as the borders of the sections;
            // taking one of those would make a dependency where none is meant.
            let used = entry.dependencies.iter().copied().chain([entry.dump_id]).max();
            last_id = last_id.max(used.unwrap_or(0));
            if let (Some(kind), Ok(oid)) = (Kind::of(entry), entry.oid.parse()) {
                by_oid.insert((kind, oid), position);
            }
        }
        Ok(Toc { metadata, by_oid, last_id, data: Vec::new(), refreshes: Vec::new() })
    }

    /// The oldest major version whose `pg_restore` reads an archive of this format.
    pub fn minimum_pg_restore_major(&self) -> u32 {
        let version = self.metadata.header.version;
        match (version.major, version.minor) {
            (1, ..=12) => 9,
            (1, 13) => 10,
            (1, 14) => 12,
            (1, 15) => 16,
            _ => 17,
        }
    }

    /// Whether an entry gives rows of a table, the value of a sequence or a refresh.
    pub fn has_data(&self) -> bool {
        let all = self.metadata.entries.iter().chain(&self.data).chain(&self.refreshes);
        all.into_iter().any(|entry| {
            matches!(
                entry.desc,
                ObjectType::TableData | ObjectType::SequenceSet | ObjectType::MaterializedViewData
            )
        })
    }

    /// The tables that have an entry, partitioned ones included.
    pub fn table_oids(&self) -> Vec<u32> {
        self.described(Kind::Table).into_iter().map(|table| table.oid).collect()
    }

    /// The sequences that have an entry, in the archive's order.
    pub fn sequences(&self) -> Vec<DumpedObject> {
        self.described(Kind::Sequence)
    }

    /// The materialized views that have an entry, in the archive's order.
    pub fn materialized_views(&self) -> Vec<DumpedObject> {
        self.described(Kind::MaterializedView)
    }

    fn described(&self, wanted: Kind) -> Vec<DumpedObject> {
        self.metadata
            .entries
            .iter()
            .filter(|entry| Kind::of(entry) == Some(wanted))
            .filter_map(|entry| {
                Some(DumpedObject {
                    oid: entry.oid.parse().ok()?,
                    schema: entry.namespace.clone().unwrap_or_default(),
                    name: entry.tag.clone().unwrap_or_default(),
                })
            })
            .collect()
    }

    fn lookup(&self, kind: Kind, oid: u32) -> Option<&Entry> {
        self.by_oid.get(&(kind, oid)).map(|position| &self.metadata.entries[*position])
    }

    pub(super) fn table_entry(&self, oid: u32) -> Result<&Entry, TocError> {
        self.require(Kind::Table, oid)
    }

    pub(super) fn sequence_entry(&self, oid: u32) -> Result<&Entry, TocError> {
        self.require(Kind::Sequence, oid)
    }

    pub(super) fn materialized_view_entry(&self, oid: u32) -> Result<&Entry, TocError> {
        self.require(Kind::MaterializedView, oid)
    }

    fn require(&self, kind: Kind, oid: u32) -> Result<&Entry, TocError> {
        self.lookup(kind, oid).ok_or(TocError::NoSuchEntry { kind: kind.name(), oid })
    }

    /// A number that is nobody's yet.
    pub(super) fn reserve_id(&mut self) -> Result<DumpId, TocError> {
        self.last_id = self.last_id.checked_add(1).ok_or(TocError::TooManyEntries)?;
        Ok(self.last_id)
    }

    pub(super) fn push_data(&mut self, entry: Entry) {
        self.data.push(entry);
    }

    pub(super) fn push_refresh(&mut self, entry: Entry) {
        self.refreshes.push(entry);
    }

    /// Says in the header how the data files are compressed. `pg_restore` finds each file by its
    /// name, but wants to know at the beginning whether it can read them.
    pub fn set_codec(&mut self, codec: Codec) -> Result<(), TocError> {
        let header = &mut self.metadata.header;
        header.compression = match codec {
            Codec::None => CompressionAlgorithm::None,
            Codec::Gzip => CompressionAlgorithm::Gzip,
            Codec::Lz4 | Codec::Zstd if header.version < NAMES_COMPRESSION => {
                return Err(TocError::CannotSayCodec { version: header.version, codec });
            }
            Codec::Lz4 => CompressionAlgorithm::Lz4,
            Codec::Zstd => CompressionAlgorithm::Zstd,
        };
        Ok(())
    }

    /// What the entries have in files, in their order.
    pub fn contents(&self) -> impl Iterator<Item = Contents> + '_ {
        let entries = self.metadata.entries.iter().chain(&self.data).chain(&self.refreshes);
        entries.filter(|entry| entry.had_dumper).filter_map(|entry| {
            let file = entry.filename.clone()?;
            Some(match entry.desc {
                ObjectType::Blobs => Contents::LargeObjects { file },
                _ => Contents::Rows { file },
            })
        })
    }

    /// Writes it into the archive's directory, in the place of the one that is there. If this
    /// fails, the old one is still there.
    pub fn write(self, directory: &Path) -> Result<(), TocError> {
        let path = directory.join(TOC_FILE_NAME);
        let temporary =
            tempfile::Builder::new().prefix(".toc").tempdir_in(directory).map_err(|source| {
                TocError::TemporaryDirectory { directory: directory.to_owned(), source }
            })?;
        let new = temporary.path().join(TOC_FILE_NAME);
        let archive = self.into_archive();
        directory::write_archive(temporary.path(), &archive)
            .map_err(|source| TocError::Write { path: path.clone(), source })?;
        // The library's buffered writer is closed when it is dropped, where an error of the last
        // write has nowhere to go: a full disk is noticed here.
        let written = directory::read_metadata(temporary.path())
            .map_err(|source| TocError::Write { path: path.clone(), source })?;
        if written.entries.len() != archive.entries.len()
            || !written.entries.iter().zip(&archive.entries).all(|(new, old)| same(new, old))
        {
            return Err(TocError::NotWhole { path });
        }
        let file =
            File::open(&new).map_err(|source| DurableError::Open { path: new.clone(), source })?;
        file.sync_all().map_err(|source| DurableError::Sync { path: new.clone(), source })?;
        durable::rename_over(&new, &path)?;
        Ok(())
    }

    fn into_archive(self) -> ArchiveData {
        let mut entries = self.metadata.entries;
        // Where pg_dump has them: rows and values before the large objects and before whatever
        // comes after the data, refreshes at the very end.
        let position = entries
            .iter()
            .position(|entry| matches!(entry.section, Section::Data | Section::PostData))
            .unwrap_or(entries.len());
        entries.splice(position..position, self.data);
        entries.extend(self.refreshes);
        ArchiveData {
            header: self.metadata.header,
            timestamp: self.metadata.timestamp,
            dbname: self.metadata.dbname,
            server_version: self.metadata.server_version,
            dump_version: self.metadata.dump_version,
            entries,
            data: HashMap::new(),
            blobs: HashMap::new(),
        }
    }
}

/// Whether an entry read back is the one that was written. The state of the data is no part of
/// this format and is guessed by the reader.
fn same(read: &Entry, written: &Entry) -> bool {
    let mut written = written.clone();
    written.data_state = read.data_state;
    *read == written
}
