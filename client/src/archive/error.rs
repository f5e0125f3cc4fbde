//! Why a table of contents cannot be used.

use std::io;
use std::path::PathBuf;

use libpgdump::ArchiveVersion;

use crate::codec::Codec;
use crate::durable::DurableError;

/// Why a table of contents cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TocError {
    /// It cannot be read.
    #[error("could not read \"{}\": {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: libpgdump::Error,
    },
    /// It cannot be written.
    #[error("could not write \"{}\": {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: libpgdump::Error,
    },
    /// A directory for the new one cannot be made.
    #[error("could not create a temporary directory in \"{}\": {source}", .directory.display())]
    TemporaryDirectory {
        /// The archive.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be made durable, or be put in the place of the old one.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// What was written does not read back as what was to be written.
    #[error("\"{}\" was not written whole", .path.display())]
    NotWhole {
        /// The file.
        path: PathBuf,
    },
    /// An object that data was to be added for has no entry.
    #[error("the archive has no entry for {kind} with OID {oid}")]
    NoSuchEntry {
        /// The kind of the object.
        kind: &'static str,
        /// Its OID.
        oid: u32,
    },
    /// All numbers are used up.
    #[error("the archive has too many entries")]
    TooManyEntries,
    /// The format has no place for it.
    #[error("an archive of format version {version} cannot say that it is compressed by {codec}")]
    CannotSayCodec {
        /// The archive's format version.
        version: ArchiveVersion,
        /// The codec.
        codec: Codec,
    },
}

impl TocError {
    /// What is wrong, without the name of the file where that is told otherwise.
    pub(crate) fn reason(&self) -> String {
        match self {
            TocError::Read { source, .. } => source.to_string(),
            other => other.to_string(),
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            TocError::Read { source: libpgdump::Error::InvalidUtf8(_), .. } => Some(
                "Definitions that are not in UTF-8 are not supported; databases with the \
                 encoding SQL_ASCII may hold such."
                    .to_owned(),
            ),
            TocError::CannotSayCodec { .. } => Some(
                "Use gzip, or name with --bindir the directory of client programs of version 16 \
                 or newer."
                    .to_owned(),
            ),
            _ => None,
        }
    }
}
