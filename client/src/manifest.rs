//! `manifest.json`: what an archive must hold, and how it came about.
//!
//! A stock `pg_restore` neither needs nor sees it. It lets `stillpoint verify` prove that every
//! file is the one that was written, and tells which snapshot the rows are of. Its last line is
//! a checksum over all lines before, as in the server's `backup_manifest`, so that a flipped bit
//! in the manifest is not taken for damage of the files, or for none.
//!
//! The format is described in `docs/archive.md`.

mod layout;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::serde::rfc3339;
use xxhash_rust::xxh3::xxh3_128;

use crate::codec::Codec;

/// The manifest's name in the archive's directory.
pub const FILE_NAME: &str = "manifest.json";

/// The version that is written, and the newest that is read. It rises when an older reader would
/// misjudge the archive, not when a key is added.
pub const FORMAT_VERSION: u32 = 1;

const CHECKSUM_KEY: &str = "manifest_checksum";

/// A checksum by XXH3 with 128 bits, written as 32 hexadecimal digits like `xxh128sum` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Checksum(u128);

impl Checksum {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Checksum(xxh3_128(bytes))
    }
}

impl From<u128> for Checksum {
    fn from(value: u128) -> Self {
        Checksum(value)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl From<Checksum> for String {
    fn from(checksum: Checksum) -> String {
        checksum.to_string()
    }
}

/// A text that is no [`Checksum`].
#[derive(Debug, thiserror::Error)]
#[error("invalid checksum: \"{0}\"")]
pub struct InvalidChecksum(String);

impl FromStr for Checksum {
    type Err = InvalidChecksum;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u128::from_str_radix(text, 16) {
            Ok(value) if digits => Ok(Checksum(value)),
            _ => Err(InvalidChecksum(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Checksum {
    type Error = InvalidChecksum;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// How the checksum of a file was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// XXH3 with 128 bits.
    #[serde(rename = "xxh3-128")]
    Xxh3,
}

/// Who compared the two snapshots' catalogs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckMethod {
    /// The server extension, in one statement.
    Extension,
    /// The client, by plain SQL over two connections.
    Plain,
    /// A word of a newer version.
    #[serde(other)]
    Unknown,
}

/// Whether DDL was held back while the dump started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// Never.
    Never,
    /// On the last attempt.
    Auto,
    /// From the start.
    Always,
    /// A word of a newer version.
    #[serde(other)]
    Unknown,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// Nothing had moved: the dump is of this snapshot.
    Verified,
    /// Relations had moved.
    Moved,
    /// The definitions could not be read, since something they need was changed.
    DdlFailed,
    /// A lock was not to be had in time.
    LockTimeout,
    /// Relations had moved in the last attempt, and their data was left out.
    LeftOut,
    /// A word of a newer version.
    #[serde(other)]
    Unknown,
}

/// A relation that had moved between the snapshot and the check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its OID.
    pub relation: u32,
    /// Its schema under the snapshot.
    pub schema: String,
    /// Its name under the snapshot.
    pub name: String,
    /// What had happened to it, in the words of the extension's `changed_relations`.
    pub reasons: Vec<String>,
    /// The rewrite is proven to have kept every row.
    pub rows_kept: bool,
    /// Told, and no ground for another attempt.
    pub harmless: bool,
    /// The relations that it is a partition or child of, through every parent.
    pub ancestors: Vec<String>,
}

/// One snapshot that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The exported snapshot's name.
    pub snapshot: String,
    /// When it was taken.
    #[serde(with = "rfc3339")]
    pub started_at: OffsetDateTime,
    /// How long the attempt took.
    pub seconds: f64,
    /// What had moved.
    pub changes: Vec<Change>,
    /// What came of it.
    pub outcome: AttemptOutcome,
    /// Where the time went.
    #[serde(default)]
    pub timings: Timings,
}

/// How long the stages of an attempt took, in seconds; 0 for those that it did not reach. Those
/// that deal with rows can run beside `ddl`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Finding what is to be dumped.
    pub resolve: f64,
    /// `pg_dump`'s run, from its start to its end.
    pub ddl: f64,
    /// Taking all locks.
    pub lock: f64,
    /// Comparing the catalogs, after the locks.
    pub check: f64,
    /// Reading and writing rows.
    pub export: f64,
    /// Comparing the catalogs again, after the export.
    #[serde(default)]
    pub recheck: f64,
}

/// A relation whose data is not in the archive, since it moved in every attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub relation: String,
    /// What had happened to it.
    pub reasons: Vec<String>,
    /// The relations whose data is not whole because of it.
    pub ancestors: Vec<String>,
}

/// A definition that changed under the dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DdlChange {
    /// The object, as `pg_identify_object` writes it.
    pub identity: String,
    /// `dropped` or `altered`.
    pub change: String,
}

/// A file of the archive. The archive's own manifest is not listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its name in the archive's directory.
    pub name: String,
    /// The schema of the relation whose rows it holds.
    pub schema: Option<String>,
    /// The relation whose rows it holds.
    pub relation: Option<String>,
    /// The rows.
    pub rows: Option<u64>,
    /// Bytes of COPY text without the terminator; of a file that is none, its size.
    pub bytes: u64,
    /// The size of the file.
    pub stored_bytes: u64,
    /// How the checksum was made.
    pub algorithm: Algorithm,
    /// Over the stored bytes.
    pub checksum: Checksum,
}

/// The manifest without the list of files, which is what the report of a dump shows, too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`FORMAT_VERSION`] of its writer.
    pub format_version: u32,
    /// The program and its version.
    pub tool: String,
    /// As the server tells it.
    pub server_version: String,
    /// Of the cluster, where the user was allowed to read it. A text, since JSON readers tend to
    /// lose the low bits of numbers as large.
    pub system_identifier: Option<String>,
    /// The database's name.
    pub database: String,
    /// The exported name of the snapshot that all rows are of.
    pub snapshot: String,
    /// A bookmark of the invalidation ledger, where the server keeps one.
    pub bookmark: Option<String>,
    /// When the dump began.
    #[serde(with = "rfc3339")]
    pub started_at: OffsetDateTime,
    /// When its last file was written.
    #[serde(with = "rfc3339")]
    pub finished_at: OffsetDateTime,
    /// Every snapshot tried, the last being the archive's.
    pub attempts: Vec<Attempt>,
    /// Who compared the catalogs.
    pub check_method: CheckMethod,
    /// Whether DDL was held back.
    pub gate: Gate,
    /// Nothing was left out and no definition had moved.
    pub complete: bool,
    /// How data files are compressed.
    pub codec: Codec,
    /// Whose data is missing.
    pub left_out: Vec<LeftOut>,
    /// Which definitions had moved.
    pub ddl_changed: Vec<DdlChange>,
}

/// All of `manifest.json`, but for its own checksum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// How the archive came about.
    #[serde(flatten)]
    pub summary: Summary,
    /// What it holds.
    pub files: Vec<FileRecord>,
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It does not parse, or a key that must be there is not.
    #[error("could not parse manifest: {0}")]
    Malformed(#[from] serde_json::Error),
    /// It was written by a newer version that says that this one would misread it.
    #[error("manifest format version {0} is not supported")]
    UnsupportedVersion(u64),
}

impl ManifestError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            ManifestError::UnsupportedVersion(_) => Some(format!(
                "This version of stillpoint reads manifests up to format version \
                 {FORMAT_VERSION}; use the version that wrote the archive, or newer."
            )),
            _ => None,
        }
    }
}

/// A manifest as it was found, damaged or not.
#[derive(Debug)]
pub struct Found {
    /// What it says.
    pub manifest: Manifest,
    /// Its checksum holds.
    pub intact: bool,
}

impl Manifest {
    /// The file's bytes: a line for every key, and for every element of the long lists.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ManifestError> {
        let mut bytes = layout::to_lines(self)?;
        bytes.extend_from_slice(b",\n");
        let checksum = Checksum::of(&bytes);
        bytes.extend_from_slice(format!("\"{CHECKSUM_KEY}\": \"{checksum}\"\n}}\n").as_bytes());
        Ok(bytes)
    }

    /// Reads a manifest even if its checksum does not hold, for a check that wants to tell all
    /// that is wrong with an archive.
    pub fn find(bytes: &[u8]) -> Result<Found, ManifestError> {
        #[derive(Deserialize)]
        struct Version {
            format_version: u64,
        }
        // Before anything else: what follows may not mean what this version thinks it means.
        let Version { format_version } = serde_json::from_slice(bytes)?;
        if format_version > u64::from(FORMAT_VERSION) {
            return Err(ManifestError::UnsupportedVersion(format_version));
        }
        let manifest = serde_json::from_slice(bytes)?;
        Ok(Found { manifest, intact: checksum_holds(bytes) })
    }
}

/// The key of the checksum must stand at the beginning of the last line but one, where the
/// writer puts it: then it cannot be a text in a list.
fn checksum_holds(bytes: &[u8]) -> bool {
    let key = format!("\n\"{CHECKSUM_KEY}\": \"");
    let Some(before) = memchr::memmem::rfind(bytes, key.as_bytes()) else { return false };
    let (covered, line) = bytes.split_at(before + 1);
    line == format!("\"{CHECKSUM_KEY}\": \"{}\"\n}}\n", Checksum::of(covered)).as_bytes()
}
