//! Good archives, damaged in one way each.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Error, Options, Outcome, Report, run};
use crate::archive::{Toc, sample};
use crate::codec::Codec;
use crate::exit::ExitStatus;
use crate::manifest::{self, LeftOut};

struct Archive {
    directory: TempDir,
    codec: Codec,
}

impl Archive {
    fn new(codec: Codec) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        sample::create(directory.path(), codec);
        Self { directory, codec }
    }

    fn gzip() -> Self {
        Self::new(Codec::Gzip)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The file that holds the rows of `t`.
    fn rows(&self) -> String {
        let manifest = sample::read_manifest(self.directory.path());
        let file = manifest.files.iter().find(|file| file.relation.as_deref() == Some("t"));
        file.expect("t has rows").name.clone()
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.path(name)).expect("a file");
        change(&mut bytes);
        fs::write(self.path(name), bytes).expect("a file");
    }

    fn change_manifest(&self, change: impl FnOnce(&mut manifest::Manifest)) {
        let mut manifest = sample::read_manifest(self.directory.path());
        change(&mut manifest);
        sample::write_manifest(self.directory.path(), &manifest);
    }

    fn verify(&self) -> Report {
        verify(self.directory.path()).expect("an archive")
    }

    /// The findings, with the file of `t` as `ROWS`.
    fn findings(&self) -> Vec<String> {
        let report = self.verify();
        assert_eq!(report.outcome() == Outcome::Intact, report.findings().is_empty());
        let rows = self.rows();
        report.findings().iter().map(|finding| finding.to_string().replace(&rows, "ROWS")).collect()
    }
}

fn verify(directory: &Path) -> Result<Report, Error> {
    run(&Options { directory: directory.to_owned(), jobs: 3 })
}

#[test]
fn an_archive_as_it_was_written_is_intact() {
    for codec in [Codec::None, Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        let archive = Archive::new(codec);
        let report = archive.verify();
        assert_eq!(report.findings(), [], "{codec}");
        assert_eq!(report.exit_status(), ExitStatus::Done);
        assert_eq!(report.contents(), (2, 3), "{codec}");
        assert_eq!(report.to_text(), "");
        assert!(report.summary().contains("intact: 6 files, 2 tables, 3 rows"), "{codec}");
    }
}

#[test]
fn a_missing_file_is_found() {
    let archive = Archive::gzip();
    fs::remove_file(archive.path(&archive.rows())).expect("a file");
    assert_eq!(archive.findings(), ["ROWS: is missing"]);
    assert_eq!(archive.verify().exit_status(), ExitStatus::Failed);
}

#[test]
fn a_missing_table_of_contents_is_found_once() {
    let archive = Archive::gzip();
    fs::remove_file(archive.path("toc.dat")).expect("a file");
    assert_eq!(archive.findings(), ["toc.dat: is missing"]);
}

#[test]
fn a_missing_large_object_is_found_and_its_list_too() {
    let archive = Archive::gzip();
    fs::remove_file(archive.path("blob_7001.dat.gz")).expect("a file");
    assert_eq!(archive.findings(), ["blob_7001.dat.gz: is missing"]);
    fs::remove_file(archive.path("blobs.toc")).expect("a file");
    assert_eq!(
        archive.findings(),
        [
            "blob_7001.dat.gz: is named by the manifest, but not by the table of contents",
            "blob_7001.dat.gz: is missing",
            "blob_7002.dat.gz: is named by the manifest, but not by the table of contents",
            "blobs.toc: is missing",
        ]
    );
}

#[test]
fn files_that_do_not_belong_there_are_found() {
    let archive = Archive::gzip();
    // Both pg_restore would read, this one in the place of the compressed one.
    let plain = archive.rows().replace(".gz", "");
    fs::write(archive.path(&plain), "9\tother\n\\.\n\n\n").expect("a file");
    fs::create_dir(archive.path("notes")).expect("a directory");
    assert_eq!(
        archive.findings(),
        [format!("{plain}: does not belong to the archive"), "notes: is not a file".to_owned()]
    );
}

#[test]
fn a_directory_in_the_place_of_a_file_is_found() {
    let archive = Archive::gzip();
    fs::remove_file(archive.path("blobs.toc")).expect("a file");
    fs::create_dir(archive.path("blobs.toc")).expect("a directory");
    assert!(archive.findings().contains(&"blobs.toc: is not a file".to_owned()));
}

#[test]
fn a_flipped_bit_is_found_in_every_file() {
    for codec in [Codec::None, Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        let archive = Archive::new(codec);
        let files = sample::read_manifest(archive.directory.path()).files;
        for file in files {
            let good = fs::read(archive.path(&file.name)).expect("a file");
            let middle = good.len() / 2;
            archive.change(&file.name, |bytes| bytes[middle] ^= 0x01);
            let found = archive.findings();
            let name = file.name.replace(&archive.rows(), "ROWS");
            let checksum = format!("{name}: has checksum ");
            assert!(
                found.iter().any(|finding| finding.starts_with(&checksum)),
                "{} {}: {found:?}",
                archive.codec,
                file.name
            );
            fs::write(archive.path(&file.name), good).expect("a file");
        }
    }
}

#[test]
fn a_file_that_was_cut_short_is_found_by_size_stream_and_rows() {
    let archive = Archive::gzip();
    archive.change(&archive.rows(), |bytes| bytes.truncate(bytes.len() - 6));
    let found = archive.findings();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("ROWS: cannot be decompressed: "), "{found:?}");
    assert!(found[1].starts_with("ROWS: has "), "{found:?}");

    let plain = Archive::new(Codec::None);
    plain.change(&plain.rows(), |bytes| bytes.truncate(6));
    assert_eq!(
        plain.findings(),
        [
            "ROWS: does not end with the end-of-data line, and only there",
            "ROWS: holds 1 rows instead of 3",
            "ROWS: holds rows of 6 bytes instead of 20",
            "ROWS: has 6 bytes instead of 25",
        ]
    );
}

#[test]
fn rows_after_the_end_of_data_are_found_although_the_checksum_is_right() {
    let archive = Archive::new(Codec::None);
    let rows = archive.rows();
    archive.change(&rows, |bytes| bytes.extend_from_slice(b"4\tfour\n\\.\n\n\n"));
    let content = fs::read(archive.path(&rows)).expect("a file");
    archive.change_manifest(|manifest| {
        let file = manifest.files.iter_mut().find(|file| file.name == rows).expect("a file");
        file.stored_bytes = content.len() as u64;
        file.checksum = manifest::Checksum::of(&content);
        file.rows = Some(7);
        file.bytes = content.len() as u64 - 5;
    });
    assert_eq!(
        archive.findings(),
        ["ROWS: does not end with the end-of-data line, and only there"]
    );
}

#[test]
fn a_wrong_number_of_rows_is_found_although_the_file_is_right() {
    let archive = Archive::gzip();
    let rows = archive.rows();
    archive.change_manifest(|manifest| {
        let file = manifest.files.iter_mut().find(|file| file.name == rows).expect("a file");
        file.rows = Some(2);
        file.bytes = 19;
    });
    assert_eq!(
        archive.findings(),
        ["ROWS: holds 3 rows instead of 2", "ROWS: holds rows of 20 bytes instead of 19"]
    );
}

#[test]
fn swapped_files_are_found() {
    let archive = Archive::gzip();
    let other = sample::read_manifest(archive.directory.path())
        .files
        .into_iter()
        .find(|file| file.relation.as_deref().is_some_and(|name| name != "t"))
        .expect("another table")
        .name;
    let (first, second) = (archive.path(&archive.rows()), archive.path(&other));
    let spare = archive.path("spare");
    fs::rename(&first, &spare).expect("a file");
    fs::rename(&second, &first).expect("a file");
    fs::rename(&spare, &second).expect("a file");
    let found = archive.findings();
    assert!(found.contains(&"ROWS: holds 0 rows instead of 3".to_owned()), "{found:?}");
    assert!(found.contains(&format!("{other}: holds 3 rows instead of 0")), "{found:?}");
}

#[test]
fn an_entry_whose_file_the_manifest_does_not_know_is_found_and_the_other_way_round() {
    let archive = Archive::gzip();
    let rows = archive.rows();
    archive.change_manifest(|manifest| manifest.files.retain(|file| file.name != rows));
    let found = archive.verify().findings()[0].to_string();
    let expected = "is named by the table of contents, but not by the manifest";
    assert_eq!(found, format!("{rows}: {expected}"));

    let archive = Archive::gzip();
    let directory = archive.directory.path();
    let described = tempfile::tempdir().expect("a directory");
    sample::describe(described.path(), libpgdump::ArchiveVersion::new(1, 16, 0));
    let toc = Toc::read(described.path()).expect("a table of contents");
    toc.write(directory).expect("a table of contents without rows");
    let found = archive.findings();
    let expected = "ROWS: is named by the manifest, but not by the table of contents";
    assert!(found.contains(&expected.to_owned()), "{found:?}");
    assert!(found.iter().any(|finding| finding.starts_with("toc.dat: has ")), "{found:?}");
}

#[test]
fn a_file_that_is_named_twice_is_found() {
    let archive = Archive::gzip();
    archive.change_manifest(|manifest| manifest.files.push(manifest.files[0].clone()));
    assert_eq!(archive.findings(), ["ROWS: is named twice by the manifest"]);
}

#[test]
fn a_damaged_table_of_contents_is_found_and_the_rest_is_checked_all_the_same() {
    let archive = Archive::gzip();
    archive.change("toc.dat", |bytes| bytes.truncate(200));
    archive.change("blobs.toc", |bytes| bytes[0] = b'9');
    let found = archive.findings();
    assert!(found.iter().any(|finding| finding.starts_with("toc.dat: is malformed: ")));
    assert!(found.iter().any(|finding| finding.starts_with("toc.dat: has 200 bytes ")));
    assert!(found.iter().any(|finding| finding.starts_with("blobs.toc: has checksum ")));
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn a_changed_manifest_is_found_and_compared_all_the_same() {
    let archive = Archive::gzip();
    archive.change(manifest::FILE_NAME, |bytes| {
        let text = String::from_utf8(std::mem::take(bytes)).expect("UTF-8");
        *bytes = text.replace("\"rows\": 3,", "\"rows\": 4,").into_bytes();
    });
    assert_eq!(
        archive.findings(),
        [
            "ROWS: holds 3 rows instead of 4",
            "manifest.json: has been changed: its checksum does not match its contents",
        ]
    );
}

#[test]
fn without_a_readable_manifest_the_files_are_checked_by_the_table_of_contents() {
    let archive = Archive::gzip();
    let rows = archive.rows();
    archive.change(&rows, |bytes| bytes.truncate(bytes.len() - 6));
    fs::write(archive.path("stranger"), "").expect("a file");
    archive.change(manifest::FILE_NAME, |bytes| bytes.truncate(100));
    let report = archive.verify();
    let found: Vec<String> = report.findings().iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with(&format!("{rows}: cannot be decompressed: ")), "{found:?}");
    assert!(found[1].starts_with("manifest.json: is malformed: "), "{found:?}");
    assert_eq!(found[2], "stranger: does not belong to the archive");
    assert_eq!(report.complete(), None);
}

#[test]
fn all_that_is_wrong_is_told_in_one_run() {
    let archive = Archive::gzip();
    archive.change(&archive.rows(), |bytes| bytes.truncate(10));
    fs::remove_file(archive.path("blob_7002.dat.gz")).expect("a file");
    archive.change("blob_7001.dat.gz", |bytes| *bytes.last_mut().expect("bytes") ^= 1);
    fs::write(archive.path("stranger"), "").expect("a file");
    archive.change("toc.dat", |bytes| bytes.push(0));
    let text = archive.verify().to_text();
    let found: Vec<&str> = text.lines().collect();
    for expected in [
        "blob_7001.dat.gz: cannot be decompressed: ",
        "blob_7001.dat.gz: has checksum ",
        "blob_7002.dat.gz: is missing",
        "stranger: does not belong to the archive",
        "toc.dat: has ",
        &format!("{}: has 10 bytes instead of ", archive.rows()),
    ] {
        assert!(found.iter().any(|line| line.starts_with(expected)), "{expected}: {text}");
    }
    assert_eq!(found.len(), 7, "{text}");
}

#[test]
fn a_dump_that_was_not_whole_is_no_damage_but_a_note() {
    let archive = Archive::gzip();
    archive.change_manifest(|manifest| {
        manifest.summary.complete = false;
        manifest.summary.left_out.push(LeftOut {
            schema: "public".into(),
            relation: "moved".into(),
            reasons: vec!["replaced".into(), "redefined".into()],
            ancestors: vec![],
        });
    });
    let report = archive.verify();
    assert_eq!(report.exit_status(), ExitStatus::Done);
    assert_eq!(report.complete(), Some(false));
    assert_eq!(
        report.to_text(),
        "note: the dump was not whole when it was written\n\
         note: the rows of public.moved were left out (replaced, redefined)\n"
    );
}

#[test]
fn what_has_no_manifest_is_not_verified_and_the_hint_says_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let error = verify(directory.path()).expect_err("it is empty");
    assert!(
        error.to_string().ends_with("has no manifest.json, so there is nothing to verify it by")
    );
    assert!(error.hint().expect("a hint").contains("stillpoint dump"));

    sample::describe(directory.path(), libpgdump::ArchiveVersion::new(1, 14, 0));
    let error = verify(directory.path()).expect_err("pg_dump's");
    assert!(error.hint().expect("a hint").contains("pg_restore reads them"));

    let error = verify(&directory.path().join("nothing")).expect_err("not there");
    assert!(error.to_string().starts_with("could not read directory \""), "{error}");
}

#[test]
fn the_report_for_programs_names_each_finding() {
    let archive = Archive::gzip();
    fs::write(archive.path("stranger"), "").expect("a file");
    let json = archive.verify().to_json().expect("JSON");
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value["command"], "verify");
    assert_eq!(value["outcome"], "damaged");
    assert_eq!(value["complete"], true);
    assert_eq!(value["rows"], 3);
    assert_eq!(
        value["findings"],
        serde_json::json!([{
            "file": "stranger",
            "kind": "extra",
            "message": "does not belong to the archive",
        }])
    );
}
