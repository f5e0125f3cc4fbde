//! How the files of an archive are compressed, in the words of `pg_dump -Z`.
//!
//! The writing half ([`Encoder`]) is made once for a worker and used for file after file: the
//! state of a compressor is hundreds of kilobytes, and a database of ten thousand small tables
//! would spend more time in making it than in compressing. The reading half ([`DataReader`])
//! serves the check of an archive and reads whatever stock `pg_restore` reads, also files of
//! several members or frames in a row.

mod decode;
mod encode;
#[cfg(test)]
mod round_trip;

use std::fmt;
use std::str::FromStr;

pub use decode::{Content, DataReader, read_content};
pub use encode::{DataWriter, Encoder, Written};

/// What ends the rows of a data file, and nothing else may follow: the end-of-data line of COPY
/// and two empty lines, as `pg_dump -Fd` writes them.
pub const TERMINATOR: &[u8] = b"\\.\n\n\n";

/// Compressor and decompressor work on pieces of this size; it bounds their memory.
const BLOCK: usize = 64 * 1024;

/// A compression method that `pg_restore` knows.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// Stored as it is.
    None,
    /// gzip, which every `pg_restore` reads.
    Gzip,
    /// LZ4 frames, from `pg_restore` 16 on.
    Lz4,
    /// Zstandard frames, from `pg_restore` 16 on.
    Zstd,
}

impl Codec {
    /// The word for it in `-Z`, in the manifest and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// What `pg_restore` expects after the name of a data file that is compressed so.
    pub fn extension(self) -> &'static str {
        match self {
            Codec::None => "",
            Codec::Gzip => ".gz",
            Codec::Lz4 => ".lz4",
            Codec::Zstd => ".zst",
        }
    }

    /// The codec that a file name tells, which is how `pg_restore` finds it out, too.
    pub fn of_file_name(name: &str) -> Codec {
        [Codec::Gzip, Codec::Lz4, Codec::Zstd]
            .into_iter()
            .find(|codec| name.ends_with(codec.extension()))
            .unwrap_or(Codec::None)
    }

    /// The levels that `-Z` may name.
    fn levels(self) -> std::ops::RangeInclusive<i32> {
        match self {
            Codec::None => 0..=0,
            Codec::Gzip => 1..=9,
            // The levels from 3 on are another, slower compressor, which we do not have; taking
            // such a level and compressing worse than asked would be a lie.
            Codec::Lz4 => 1..=2,
            Codec::Zstd => zstd::compression_level_range(),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A codec and, where it has several, the level asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    codec: Codec,
    level: Option<i32>,
}

impl Compression {
    /// No compression.
    pub const NONE: Compression = Compression { codec: Codec::None, level: None };

    /// The default of `pg_dump -Fd`: gzip at zlib's default level.
    pub const GZIP: Compression = Compression { codec: Codec::Gzip, level: None };

    /// The codec.
    pub fn codec(self) -> Codec {
        self.codec
    }

    /// The level, where one was named.
    pub fn level(self) -> Option<i32> {
        self.level
    }

    /// What to give to the `-Z` of a `pg_dump` of this major version, so that the large objects
    /// it writes are compressed as our files are. Before 16 that option took a bare level.
    pub fn pg_dump_option(self, major: u32) -> Result<String, CompressionError> {
        if major >= 16 {
            return Ok(self.to_string());
        }
        match (self.codec, self.level) {
            (Codec::None, _) => Ok("0".to_owned()),
            (Codec::Gzip, level) => Ok(level.unwrap_or(6).to_string()),
            (codec, _) => Err(CompressionError::NeedsNewerPgDump { codec, major }),
        }
    }
}

impl Default for Compression {
    fn default() -> Self {
        Compression::GZIP
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            None => write!(formatter, "{}", self.codec),
            Some(level) => write!(formatter, "{}:{level}", self.codec),
        }
    }
}

/// Why a compression is not to be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompressionError {
    /// The word before the colon is no method.
    #[error("unrecognized compression algorithm: \"{0}\"")]
    UnknownCodec(String),
    /// What stands after the colon is no number.
    #[error("invalid compression level: \"{0}\"")]
    InvalidLevel(String),
    /// The method has no such level.
    #[error(
        "compression algorithm \"{codec}\" expects a level between {} and {}, not {level}",
        .codec.levels().start(), .codec.levels().end()
    )]
    LevelOutOfRange {
        /// The method.
        codec: Codec,
        /// The level asked for.
        level: i32,
    },
    /// `none` with a level.
    #[error("compression algorithm \"none\" takes no level")]
    NoneTakesNoLevel,
    /// A bare number that is no level of gzip.
    #[error("compression level must be between 0 and 9, not {0}")]
    BareLevelOutOfRange(i32),
    /// `pg_dump` before 16 writes large objects by gzip or as they are, and its archive's header
    /// knows no other method.
    #[error("pg_dump {major} cannot write archives compressed by {codec}")]
    NeedsNewerPgDump {
        /// The method.
        codec: Codec,
        /// The major version of the program at hand.
        major: u32,
    },
}

impl CompressionError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            CompressionError::UnknownCodec(_) => {
                Some("Use none, gzip, lz4 or zstd, with a level after a colon.".to_owned())
            }
            CompressionError::LevelOutOfRange { codec: Codec::Lz4, .. } => {
                Some("Use zstd for smaller archives.".to_owned())
            }
            CompressionError::NeedsNewerPgDump { .. } => Some(
                "Use gzip, or name with --bindir the directory of client programs of version 16 \
                 or newer."
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

impl FromStr for Compression {
    type Err = CompressionError;

    /// Reads `METHOD[:LEVEL]`, `METHOD:level=LEVEL`, or a bare level, as `pg_dump -Z` does.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(level) = text.parse::<i32>() {
            return match level {
                0 => Ok(Compression::NONE),
                1..=9 => Ok(Compression { codec: Codec::Gzip, level: Some(level) }),
                _ => Err(CompressionError::BareLevelOutOfRange(level)),
            };
        }
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        let codec = [Codec::None, Codec::Gzip, Codec::Lz4, Codec::Zstd]
            .into_iter()
            .find(|codec| codec.name() == name)
            .ok_or_else(|| CompressionError::UnknownCodec(name.to_owned()))?;
        let Some(level) = level else { return Ok(Compression { codec, level: None }) };
        if codec == Codec::None {
            return Err(CompressionError::NoneTakesNoLevel);
        }
        let level: i32 = level
            .strip_prefix("level=")
            .unwrap_or(level)
            .parse()
            .map_err(|_| CompressionError::InvalidLevel(level.to_owned()))?;
        if !codec.levels().contains(&level) {
            return Err(CompressionError::LevelOutOfRange { codec, level });
        }
        Ok(Compression { codec, level: Some(level) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Compression, CompressionError> {
        text.parse()
    }

    fn message(text: &str) -> String {
        parse(text).expect_err(text).to_string()
    }

    #[test]
    fn the_words_of_pg_dump_are_understood() {
        assert_eq!(parse("none"), Ok(Compression::NONE));
        assert_eq!(parse("0"), Ok(Compression::NONE));
        assert_eq!(parse("gzip"), Ok(Compression::GZIP));
        assert_eq!(parse("7"), Ok(Compression { codec: Codec::Gzip, level: Some(7) }));
        assert_eq!(parse("gzip:1"), Ok(Compression { codec: Codec::Gzip, level: Some(1) }));
        assert_eq!(parse("gzip:level=9"), Ok(Compression { codec: Codec::Gzip, level: Some(9) }));
        assert_eq!(parse("lz4"), Ok(Compression { codec: Codec::Lz4, level: None }));
        assert_eq!(parse("zstd:-5"), Ok(Compression { codec: Codec::Zstd, level: Some(-5) }));
        assert_eq!(parse("zstd:19"), Ok(Compression { codec: Codec::Zstd, level: Some(19) }));
    }

    #[test]
    fn what_is_written_reads_back_as_itself() {
        for text in ["none", "gzip", "gzip:3", "lz4", "lz4:1", "zstd", "zstd:-2"] {
            assert_eq!(parse(text).expect(text).to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        assert_eq!(message("brotli:3"), "unrecognized compression algorithm: \"brotli\"");
        assert_eq!(message(""), "unrecognized compression algorithm: \"\"");
        assert_eq!(message("gzip:fast"), "invalid compression level: \"fast\"");
        assert_eq!(message("zstd:workers=2"), "invalid compression level: \"workers=2\"");
        assert_eq!(
            message("gzip:10"),
            "compression algorithm \"gzip\" expects a level between 1 and 9, not 10"
        );
        assert_eq!(
            message("lz4:9"),
            "compression algorithm \"lz4\" expects a level between 1 and 2, not 9"
        );
        assert_eq!(message("none:1"), "compression algorithm \"none\" takes no level");
        assert_eq!(message("-1"), "compression level must be between 0 and 9, not -1");
    }

    #[test]
    fn an_old_pg_dump_gets_the_bare_level_it_knows() {
        assert_eq!(Compression::NONE.pg_dump_option(15).as_deref(), Ok("0"));
        assert_eq!(Compression::GZIP.pg_dump_option(15).as_deref(), Ok("6"));
        assert_eq!(Compression::GZIP.pg_dump_option(16).as_deref(), Ok("gzip"));
        let zstd = parse("zstd:3").expect("a compression");
        assert_eq!(zstd.pg_dump_option(17).as_deref(), Ok("zstd:3"));
        assert_eq!(
            zstd.pg_dump_option(15).expect_err("too old").to_string(),
            "pg_dump 15 cannot write archives compressed by zstd"
        );
    }

    #[test]
    fn a_file_name_tells_its_codec() {
        for codec in [Codec::None, Codec::Gzip, Codec::Lz4, Codec::Zstd] {
            assert_eq!(Codec::of_file_name(&format!("12.dat{}", codec.extension())), codec);
        }
    }
}
