//! Tables of contents that are added to, and damaged ones.

use std::fs;
use std::path::Path;

use libpgdump::format::directory::read_metadata;
use libpgdump::{ArchiveVersion, CompressionAlgorithm, Entry, Section};
use tempfile::TempDir;

use super::sample::{self, QUOTED, SEQUENCE, TABLE, VIEW};
use super::{
    Contents, Creator, MaterializedViewData, SequenceSet, TOC_FILE_NAME, TableData, Toc, TocError,
    copy_statement, data_file_name,
};
use crate::codec::Codec;

const PG_15: ArchiveVersion = ArchiveVersion::new(1, 14, 0);

fn described(version: ArchiveVersion) -> (TempDir, Toc) {
    let directory = tempfile::tempdir().expect("a directory");
    sample::describe(directory.path(), version);
    let toc = Toc::read(directory.path()).expect("a table of contents");
    (directory, toc)
}

fn table(oid: u32) -> TableData<'static> {
    TableData {
        oid,
        created_by: Creator::Archive,
        copy_statement: "COPY public.t (id) FROM stdin;\n",
        after: &[],
    }
}

fn sequence(oid: u32) -> SequenceSet<'static> {
    SequenceSet {
        oid,
        created_by: Creator::Archive,
        qualified_name: "public.s",
        last_value: -7,
        is_called: false,
    }
}

fn entries(directory: &Path) -> Vec<Entry> {
    read_metadata(directory).expect("a table of contents").entries
}

fn tags(directory: &Path) -> Vec<String> {
    let name = |entry: &Entry| format!("{} {}", entry.desc, entry.tag.as_deref().unwrap_or(""));
    entries(directory).iter().map(name).collect()
}

#[test]
fn entries_come_where_pg_dump_has_them() {
    let (directory, mut toc) = described(PG_15);
    let view = MaterializedViewData { oid: VIEW, qualified_name: "public.v", after: &[] };
    toc.add_materialized_view_data(view).expect("a view");
    toc.add_table_data(table(QUOTED)).expect("a table");
    toc.add_table_data(table(TABLE)).expect("a table");
    toc.add_sequence_set(sequence(SEQUENCE)).expect("a sequence");
    toc.write(directory.path()).expect("written");
    assert_eq!(
        tags(directory.path()),
        [
            "TABLE t",
            "ACL TABLE t",
            "TABLE a \"b\"\nc",
            "SEQUENCE s",
            "MATERIALIZED VIEW v",
            "TABLE DATA a \"b\"\nc",
            "TABLE DATA t",
            "SEQUENCE SET s",
            "BLOBS BLOBS",
            "INDEX t_index",
            "MATERIALIZED VIEW DATA v",
        ]
    );
}

#[test]
fn an_archive_without_anything_after_the_data_gets_it_at_the_end() {
    let (directory, toc) = described(PG_15);
    drop(toc);
    let mut metadata = read_metadata(directory.path()).expect("a table of contents");
    metadata.entries.retain(|entry| entry.section != Section::PostData && !entry.had_dumper);
    let archive = libpgdump::ArchiveData {
        header: metadata.header,
        timestamp: metadata.timestamp,
        dbname: metadata.dbname,
        server_version: metadata.server_version,
        dump_version: metadata.dump_version,
        entries: metadata.entries,
        data: Default::default(),
        blobs: Default::default(),
    };
    libpgdump::format::directory::write_archive(directory.path(), &archive).expect("written");
    let mut toc = Toc::read(directory.path()).expect("a table of contents");
    toc.add_table_data(table(TABLE)).expect("a table");
    toc.write(directory.path()).expect("written");
    assert_eq!(tags(directory.path()).last().map(String::as_str), Some("TABLE DATA t"));
}

#[test]
fn each_entry_has_the_fields_that_pg_dump_gives_it() {
    let (directory, mut toc) = described(PG_15);
    let data = toc.add_table_data(table(TABLE)).expect("a table");
    let value = toc.add_sequence_set(sequence(SEQUENCE)).expect("a sequence");
    let view = MaterializedViewData { oid: VIEW, qualified_name: "public.v", after: &[data] };
    let refresh = toc.add_materialized_view_data(view).expect("a view");
    toc.write(directory.path()).expect("written");
    let entries = entries(directory.path());
    let find = |id| entries.iter().find(|entry| entry.dump_id == id).expect("an entry");

    let data = find(data);
    assert!(data.had_dumper);
    assert_eq!((data.table_oid.as_str(), data.oid.as_str()), ("0", "16385"));
    assert_eq!(data.filename.as_deref(), Some(data_file_name(TABLE).as_str()));
    assert_eq!(data.copy_stmt.as_deref(), Some("COPY public.t (id) FROM stdin;\n"));
    assert_eq!((data.defn.as_deref(), data.drop_stmt.as_deref()), (None, None));
    assert_eq!(data.namespace.as_deref(), Some("public"));
    assert_eq!(data.owner.as_deref(), Some("alice"));
    assert_eq!(data.tablespace, None);
    assert_eq!(data.dependencies, [10]);

    let value = find(value);
    assert!(!value.had_dumper);
    assert_eq!((value.table_oid.as_str(), value.oid.as_str()), ("0", "0"));
    assert_eq!(value.defn.as_deref(), Some("SELECT pg_catalog.setval('public.s', -7, false);\n"));
    assert_eq!((value.section, value.filename.as_deref()), (Section::Data, None));
    assert_eq!(value.dependencies, [12]);

    let refresh = find(refresh);
    assert_eq!((refresh.table_oid.as_str(), refresh.oid.as_str()), ("0", "16400"));
    assert_eq!(refresh.defn.as_deref(), Some("REFRESH MATERIALIZED VIEW public.v;\n"));
    assert_eq!(refresh.section, Section::PostData);
    assert_eq!(refresh.dependencies, [13, data.dump_id]);
}

#[test]
fn no_number_is_given_twice_and_none_that_others_depend_on() {
    let (_directory, mut toc) = described(PG_15);
    // The largest entry is 40, and 41 is the border that the index comes after.
    assert_eq!(toc.add_table_data(table(TABLE)).expect("a table"), 42);
    assert_eq!(toc.add_table_data(table(QUOTED)).expect("a table"), 43);
    assert_eq!(toc.add_sequence_set(sequence(SEQUENCE)).expect("a sequence"), 44);
}

#[test]
fn an_extensions_table_takes_its_names_from_the_caller() {
    let (directory, mut toc) = described(PG_15);
    let created_by = Creator::Extension { schema: "geo", name: "systems", owner: "bob" };
    let first = TableData { created_by, ..table(99) };
    let first_id = toc.add_table_data(first).expect("a table");
    let second = TableData { oid: 98, after: &[first_id], ..first };
    let second_id = toc.add_table_data(second).expect("a table");
    toc.write(directory.path()).expect("written");
    let entries = entries(directory.path());
    let find = |id| entries.iter().find(|entry| entry.dump_id == id).expect("an entry");
    let (first, second) = (find(first_id), find(second_id));
    assert_eq!(first.namespace.as_deref(), Some("geo"));
    assert_eq!(first.owner.as_deref(), Some("bob"));
    // pg_restore knows table data by its first dependency: two must not share one.
    assert_ne!(first.dependencies[0], second.dependencies[0]);
    assert_eq!(second.dependencies[1..], [first_id]);
    assert!(entries.iter().all(|entry| entry.dump_id != first.dependencies[0]));
}

#[test]
fn what_has_no_entry_gets_no_data() {
    let (_directory, mut toc) = described(PG_15);
    let error = toc.add_table_data(table(SEQUENCE)).expect_err("a sequence");
    assert_eq!(error.to_string(), "the archive has no entry for table with OID 16395");
    assert!(toc.add_sequence_set(sequence(TABLE)).is_err());
    let view = MaterializedViewData { oid: TABLE, qualified_name: "public.t", after: &[] };
    assert!(toc.add_materialized_view_data(view).is_err());
}

#[test]
fn the_statement_that_loads_rows_is_pg_dumps() {
    let columns = ["id", "\"a b\"", "\"select\""];
    assert_eq!(
        copy_statement("public.\"T\"", &columns),
        "COPY public.\"T\" (id, \"a b\", \"select\") FROM stdin;\n"
    );
    // Two blanks, as pg_dump has them for a table without columns of its own.
    assert_eq!(copy_statement::<&str>("public.t", &[]), "COPY public.t  FROM stdin;\n");
}

#[test]
fn names_of_sequences_are_texts_whatever_they_hold() {
    for (name, literal) in
        [("public.\"it's\"", "'public.\"it''s\"'"), ("public.\"a\\b\"", "E'public.\"a\\\\b\"'")]
    {
        let (directory, mut toc) = described(PG_15);
        let named = SequenceSet { qualified_name: name, ..sequence(SEQUENCE) };
        let id = toc.add_sequence_set(named).expect("a sequence");
        toc.write(directory.path()).expect("written");
        let entries = entries(directory.path());
        let entry = entries.iter().find(|entry| entry.dump_id == id).expect("an entry");
        let expected = format!("SELECT pg_catalog.setval({literal}, -7, false);\n");
        assert_eq!(entry.defn.as_deref(), Some(expected.as_str()));
    }
}

#[test]
fn the_header_says_the_codec_where_it_can() {
    let (directory, mut toc) = described(PG_15);
    toc.set_codec(Codec::None).expect("a level");
    let error = toc.set_codec(Codec::Zstd).expect_err("only a level");
    assert_eq!(
        error.to_string(),
        "an archive of format version 1.14.0 cannot say that it is compressed by zstd"
    );
    assert!(error.hint().expect("a hint").contains("--bindir"));
    assert_eq!(toc.minimum_pg_restore_major(), 12);
    toc.write(directory.path()).expect("written");
    let header = read_metadata(directory.path()).expect("a table of contents").header;
    assert_eq!(header.compression, CompressionAlgorithm::None);

    let (directory, mut toc) = described(ArchiveVersion::new(1, 15, 0));
    toc.set_codec(Codec::Zstd).expect("a method");
    assert_eq!(toc.minimum_pg_restore_major(), 16);
    toc.write(directory.path()).expect("written");
    let header = read_metadata(directory.path()).expect("a table of contents").header;
    assert_eq!(header.compression, CompressionAlgorithm::Zstd);
}

#[test]
fn contents_are_rows_and_large_objects() {
    let (directory, mut toc) = described(PG_15);
    toc.add_table_data(table(TABLE)).expect("a table");
    toc.write(directory.path()).expect("written");
    let toc = Toc::read(directory.path()).expect("a table of contents");
    let contents: Vec<Contents> = toc.contents().collect();
    assert_eq!(
        contents,
        [
            Contents::Rows { file: data_file_name(TABLE) },
            Contents::LargeObjects { file: "blobs.toc".into() },
        ]
    );
}

#[test]
fn writing_leaves_nothing_else_and_a_failure_leaves_the_old_one() {
    let (directory, mut toc) = described(PG_15);
    toc.add_table_data(table(TABLE)).expect("a table");
    toc.write(directory.path()).expect("written");
    let names: Vec<_> = fs::read_dir(directory.path())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, [TOC_FILE_NAME]);

    let before = fs::read(directory.path().join(TOC_FILE_NAME)).expect("a file");
    let toc = Toc::read(directory.path()).expect("a table of contents");
    let elsewhere = directory.path().join("not there");
    assert!(matches!(toc.write(&elsewhere), Err(TocError::TemporaryDirectory { .. })));
    assert_eq!(fs::read(directory.path().join(TOC_FILE_NAME)).expect("a file"), before);
}

#[test]
fn no_damage_to_a_table_of_contents_ends_the_process() {
    for version in [PG_15, ArchiveVersion::new(1, 16, 0)] {
        let (directory, _toc) = described(version);
        let path = directory.path().join(TOC_FILE_NAME);
        let good = fs::read(&path).expect("a file");
        let mut refused = 0;
        // Every byte of the header and of the first entry, then some.
        for position in (0..200).chain((200..good.len()).step_by(17)) {
            for damage in [0x01, 0x80] {
                let mut bytes = good.clone();
                bytes[position] ^= damage;
                fs::write(&path, bytes).expect("a file");
                refused += usize::from(Toc::read(directory.path()).is_err());
            }
            fs::write(&path, &good[..position]).expect("a file");
            assert!(Toc::read(directory.path()).is_err(), "cut to {position}");
        }
        assert!(refused > 0);
    }
}
