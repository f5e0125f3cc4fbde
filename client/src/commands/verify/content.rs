//! One file against its line of the manifest.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::finding::{Damage, Finding};
use super::{Checked, Expected, Kind};
use crate::codec::{Codec, Content, DataReader, read_content};

/// Reads the file once, and checks stored bytes and content at the same time.
pub fn check(directory: &Path, file: &Expected<'_>) -> Checked {
    let mut checked = Checked { rows: None, stored_bytes: 0, findings: Vec::new() };
    if let Err(error) = read(directory, file, &mut checked) {
        let message = error.to_string();
        checked.findings.push(Finding::new(file.name, Damage::Unreadable { message }));
    }
    checked
}

fn read(directory: &Path, file: &Expected<'_>, checked: &mut Checked) -> io::Result<()> {
    let mut damaged = |damage| checked.findings.push(Finding::new(file.name, damage));
    let codec = match file.kind {
        Kind::Rows | Kind::LargeObject => Codec::of_file_name(file.name),
        Kind::Plain => Codec::None,
    };
    let mut reader = DataReader::new(File::open(directory.join(file.name))?, codec)?;
    let content = match file.kind {
        Kind::Rows => read_content(&mut reader).map(Some),
        Kind::LargeObject | Kind::Plain => drain(&mut reader).map(|()| None),
    };
    match content {
        Ok(Some(content)) => {
            checked.rows = Some(content.rows);
            compare_content(&content, file, &mut damaged);
        }
        Ok(None) => {}
        // An error of the system comes again below.
        Err(error) if codec != Codec::None => {
            damaged(Damage::Broken { message: error.to_string() });
        }
        Err(error) => return Err(error),
    }
    let (stored_bytes, checksum) = reader.finish()?;
    checked.stored_bytes = stored_bytes;
    let Some(record) = file.record else { return Ok(()) };
    if stored_bytes != record.stored_bytes {
        damaged(Damage::Size { expected: record.stored_bytes, found: stored_bytes });
    } else if checksum != record.checksum {
        damaged(Damage::Checksum { expected: record.checksum, found: checksum });
    }
    Ok(())
}

/// Reads on until the end: a decompressor finds damage only on its way there.
fn drain(reader: &mut impl Read) -> io::Result<()> {
    let mut buffer = [0; 32 * 1024];
    while reader.read(&mut buffer)? > 0 {}
    Ok(())
}

fn compare_content(content: &Content, file: &Expected<'_>, damaged: &mut impl FnMut(Damage)) {
    if !content.terminated {
        damaged(Damage::NotTerminated);
    }
    let Some(record) = file.record else { return };
    match record.rows {
        Some(expected) if expected != content.rows => {
            damaged(Damage::Rows { expected, found: content.rows });
        }
        _ => {}
    }
    if record.bytes != content.bytes {
        damaged(Damage::Bytes { expected: record.bytes, found: content.bytes });
    }
}
