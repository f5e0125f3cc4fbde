//! The end: table of contents, manifest, one sync, and the archive's own name.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use time::OffsetDateTime;
use xxhash_rust::xxh3::Xxh3;

use super::export::Completed;
use super::report::{Recorder, below};
use super::{Error, Options};
use crate::archive::TOC_FILE_NAME;
use crate::durable::{self, Tree};
use crate::interrupt::Partial;
use crate::manifest::{self, Algorithm, Checksum, FileRecord, Manifest};

/// Completes the archive and gives it its name. Gives whether it is whole.
pub fn finish(
    options: &Options,
    recorder: &mut Recorder,
    completed: Completed,
    partial: Partial,
    tree: &Tree,
) -> Result<bool, Error> {
    let directory = partial.path();
    let Completed { mut toc, mut files, left_out, .. } = completed;
    toc.set_codec(options.compression.codec())?;
    toc.write(directory)?;
    add_other_files(directory, &mut files)?;
    files.sort_unstable_by(|a, b| a.name.cmp(&b.name));

    recorder.left_out(&left_out);
    for left_out in &recorder.summary.left_out {
        tracing::warn!(
            "the rows of {}.{} are left out: {}{}",
            left_out.schema,
            left_out.relation,
            left_out.reasons.join(", "),
            below(&left_out.ancestors),
        );
    }
    recorder.summary.finished_at = OffsetDateTime::now_utc();
    let complete = recorder.summary.complete;
    let manifest = Manifest { summary: recorder.summary.clone(), files };
    write_manifest(&manifest, directory)?;
    tree.sync()?;
    partial.publish(&options.directory)?;
    log_summary(&manifest);
    Ok(complete)
}

fn write_manifest(manifest: &Manifest, directory: &Path) -> Result<(), Error> {
    Ok(durable::create(&directory.join(manifest::FILE_NAME), &manifest.to_bytes()?)?)
}

fn log_summary(manifest: &Manifest) {
    let tables = manifest.files.iter().filter(|file| file.rows.is_some()).count();
    let rows: u64 = manifest.files.iter().filter_map(|file| file.rows).sum();
    let stored: u64 = manifest.files.iter().map(|file| file.stored_bytes).sum();
    let summary = &manifest.summary;
    tracing::info!(
        "dumped database \"{}\": {tables} tables, {rows} rows, {:.1} MB in {:.1} s, \
         verified in attempt {}{}",
        summary.database,
        stored as f64 / 1e6,
        (summary.finished_at - summary.started_at).as_seconds_f64(),
        summary.attempts.len(),
        if summary.complete {
            String::new()
        } else {
            format!("; NOT WHOLE: the rows of {} relations are left out", summary.left_out.len())
        },
    );
}

/// Records what is not a table's rows: the table of contents and the large objects. Whatever else
/// there is would be taken for them.
fn add_other_files(directory: &Path, files: &mut Vec<FileRecord>) -> Result<(), Error> {
    /// What the names of `pg_dump`'s files of large objects and their lists begin with.
    const LARGE_OBJECTS: &str = "blob";

    let known: HashSet<String> = files.iter().map(|file| file.name.clone()).collect();
    let failed = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { doing, path, source }
    };
    for entry in std::fs::read_dir(directory).map_err(failed("read directory", directory))? {
        let entry = entry.map_err(failed("read directory", directory))?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if known.contains(&name) {
            continue;
        }
        if name != TOC_FILE_NAME && !name.starts_with(LARGE_OBJECTS) {
            return Err(Error::Stray(path));
        }
        let (bytes, checksum) = checksum(&path).map_err(failed("read file", &path))?;
        files.push(FileRecord {
            name,
            schema: None,
            relation: None,
            rows: None,
            bytes,
            stored_bytes: bytes,
            algorithm: Algorithm::Xxh3,
            checksum,
        });
    }
    Ok(())
}

fn checksum(path: &Path) -> std::io::Result<(u64, Checksum)> {
    const BLOCK: usize = 64 * 1024;
    let mut file = File::open(path)?;
    let mut hasher = Xxh3::new();
    let mut block = vec![0; BLOCK];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            return Ok((bytes, Checksum::from(hasher.digest128())));
        }
        hasher.update(&block[..read]);
        bytes += read as u64;
    }
}
