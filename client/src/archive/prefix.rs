//! A look at the beginning of a table of contents before the library reads it.
//!
//! The library believes what it reads: for a damaged number of entries it asks for more memory
//! than there is, which ends the process, and it computes with integers of any size. Whoever
//! verifies an archive wants to be told, instead.

use std::io::Cursor;
use std::io::Read;

use libpgdump::io::primitives::{read_byte, read_int, read_string, read_timestamp};
use libpgdump::{ArchiveVersion, Error, Result};

use super::toc::NAMES_COMPRESSION;

/// Every PostgreSQL writes its C `int`, and 32 bits are all that an entry's number has.
const INT_SIZE: u8 = 4;

/// An entry has two integers and more than ten texts, each with an integer before it.
const SMALLEST_ENTRY: usize = 60;

/// Fails if the number of entries cannot be true, or cannot be found.
pub fn check(bytes: &[u8]) -> Result<()> {
    let mut reader = Cursor::new(bytes);
    // What stands here is checked by the library.
    let mut magic = [0; 5];
    reader.read_exact(&mut magic)?;
    let version = ArchiveVersion::new(
        read_byte(&mut reader)?,
        read_byte(&mut reader)?,
        read_byte(&mut reader)?,
    );
    let int_size = read_byte(&mut reader)?;
    if int_size != INT_SIZE {
        return Err(Error::InvalidHeader(format!("integers of {int_size} bytes")));
    }
    let _off_size = read_byte(&mut reader)?;
    let _format = read_byte(&mut reader)?;
    if version >= NAMES_COMPRESSION {
        read_byte(&mut reader)?;
    } else {
        read_int(&mut reader, INT_SIZE)?;
    }
    read_timestamp(&mut reader, INT_SIZE)?;
    for _ in ["database", "server version", "pg_dump version"] {
        read_string(&mut reader, INT_SIZE)?;
    }
    let entries = read_int(&mut reader, INT_SIZE)?;
    let left = bytes.len().saturating_sub(usize::try_from(reader.position()).unwrap_or(usize::MAX));
    match usize::try_from(entries) {
        Ok(entries) if entries <= left / SMALLEST_ENTRY => Ok(()),
        _ => Err(Error::DataIntegrity(format!("{entries} entries cannot be in {left} bytes"))),
    }
}
