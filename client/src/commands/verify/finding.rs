//! What can be wrong with an archive.

use std::fmt;

use crate::manifest::Checksum;

/// One thing that is wrong with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file's name in the archive.
    pub file: String,
    /// What is wrong.
    pub damage: Damage,
}

impl Finding {
    pub(super) fn new(file: impl Into<String>, damage: Damage) -> Self {
        Self { file: file.into(), damage }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.file, self.damage)
    }
}

/// A way in which a file can be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It is not there.
    Missing,
    /// It is there, and nothing names it. `pg_restore` may take it for another: of `1.dat` and
    /// `1.dat.gz` it reads the former.
    Extra,
    /// It is a directory, or something stranger.
    NotAFile,
    /// The manifest names it twice.
    NamedTwice,
    /// The table of contents needs it, and the manifest does not know it.
    NotInManifest,
    /// The manifest names it, and nothing restores it.
    NotInToc,
    /// The system does not let us read it.
    Unreadable {
        /// What it says.
        message: String,
    },
    /// It is not of its format.
    Malformed {
        /// What its reader says.
        message: String,
    },
    /// The manifest has been changed or damaged. What it says is compared all the same.
    ManifestChecksum,
    /// It is shorter or longer than it was.
    Size {
        /// By the manifest.
        expected: u64,
        /// As it is.
        found: u64,
    },
    /// It has another content than it had.
    Checksum {
        /// By the manifest.
        expected: Checksum,
        /// As it is.
        found: Checksum,
    },
    /// It cannot be decompressed.
    Broken {
        /// What the decompressor says.
        message: String,
    },
    /// Its rows do not end as they must: the end is missing, or there is something after it.
    NotTerminated,
    /// It has another number of rows.
    Rows {
        /// By the manifest.
        expected: u64,
        /// As it is.
        found: u64,
    },
    /// Its rows have another length.
    Bytes {
        /// By the manifest.
        expected: u64,
        /// As it is.
        found: u64,
    },
}

impl Damage {
    /// A word for programs.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::NotAFile => "not_a_file",
            Self::NamedTwice => "named_twice",
            Self::NotInManifest => "not_in_manifest",
            Self::NotInToc => "not_in_toc",
            Self::Unreadable { .. } => "unreadable",
            Self::Malformed { .. } => "malformed",
            Self::ManifestChecksum => "manifest_checksum",
            Self::Size { .. } => "size",
            Self::Checksum { .. } => "checksum",
            Self::Broken { .. } => "broken",
            Self::NotTerminated => "not_terminated",
            Self::Rows { .. } => "rows",
            Self::Bytes { .. } => "bytes",
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => formatter.write_str("is missing"),
            Self::Extra => formatter.write_str("does not belong to the archive"),
            Self::NotAFile => formatter.write_str("is not a file"),
            Self::NamedTwice => formatter.write_str("is named twice by the manifest"),
            Self::NotInManifest => {
                formatter.write_str("is named by the table of contents, but not by the manifest")
            }
            Self::NotInToc => {
                formatter.write_str("is named by the manifest, but not by the table of contents")
            }
            Self::Unreadable { message } => write!(formatter, "could not be read: {message}"),
            Self::Malformed { message } => write!(formatter, "is malformed: {message}"),
            Self::ManifestChecksum => {
                formatter.write_str("has been changed: its checksum does not match its contents")
            }
            Self::Size { expected, found } => {
                write!(formatter, "has {found} bytes instead of {expected}")
            }
            Self::Checksum { expected, found } => {
                write!(formatter, "has checksum {found} instead of {expected}")
            }
            Self::Broken { message } => write!(formatter, "cannot be decompressed: {message}"),
            Self::NotTerminated => {
                formatter.write_str("does not end with the end-of-data line, and only there")
            }
            Self::Rows { expected, found } => {
                write!(formatter, "holds {found} rows instead of {expected}")
            }
            Self::Bytes { expected, found } => {
                write!(formatter, "holds rows of {found} bytes instead of {expected}")
            }
        }
    }
}
