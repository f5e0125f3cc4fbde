//! A small archive for tests, as a `pg_dump` without rows leaves it, and a whole one.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use libpgdump::format::directory::write_archive;
use libpgdump::{
    ArchiveData, ArchiveVersion, CompressionAlgorithm, Entry, Format, Header, ObjectType,
    OffsetState, Section, Timestamp,
};
use time::OffsetDateTime;

use super::{
    Creator, MaterializedViewData, SequenceSet, TOC_FILE_NAME, TableData, Toc, copy_statement,
    data_file_name,
};
use crate::codec::{Codec, Compression, Encoder};
use crate::manifest::{
    self, Algorithm, CheckMethod, Checksum, FORMAT_VERSION, FileRecord, Gate, Manifest, Summary,
};

/// The OID of the table.
pub const TABLE: u32 = 16385;
/// The OID of the table with the strange name.
pub const QUOTED: u32 = 16390;
/// The OID of the sequence.
pub const SEQUENCE: u32 = 16395;
/// The OID of the materialized view.
pub const VIEW: u32 = 16400;

/// Creates the directory as `pg_dump --exclude-table-data='*.*'` of this version would: two
/// tables, a sequence, a materialized view, an index, two large objects.
pub fn describe(directory: &Path, version: ArchiveVersion) {
    let create = |dump_id, desc: ObjectType, oid: u32, tag: &str| Entry {
        dump_id,
        had_dumper: false,
        table_oid: "1259".into(),
        oid: oid.to_string(),
        tag: Some(tag.into()),
        section: Section::PreData,
        defn: Some(format!("CREATE {desc} public.{tag};\n")),
        desc,
        drop_stmt: Some(String::new()),
        copy_stmt: None,
        namespace: Some("public".into()),
        tablespace: Some(String::new()),
        tableam: Some("heap".into()),
        relkind: None,
        owner: Some("alice".into()),
        with_oids: false,
        dependencies: vec![],
        data_state: OffsetState::NoData,
        offset: 0,
        filename: None,
    };
    let blobs = Entry {
        had_dumper: true,
        table_oid: "0".into(),
        section: Section::Data,
        defn: None,
        data_state: OffsetState::NotSet,
        filename: Some("blobs.toc".into()),
        ..create(30, ObjectType::Blobs, 0, "BLOBS")
    };
    let index = Entry {
        section: Section::PostData,
        // The border between the sections has a number, and no entry.
        dependencies: vec![10, 41],
        ..create(25, ObjectType::Index, 16405, "t_index")
    };
    let acl = Entry {
        table_oid: "0".into(),
        section: Section::None,
        dependencies: vec![10],
        ..create(40, ObjectType::Acl, 0, "TABLE t")
    };
    let archive = ArchiveData {
        header: Header {
            version,
            int_size: 4,
            off_size: 8,
            format: Format::Directory,
            compression: CompressionAlgorithm::Gzip,
        },
        timestamp: Timestamp {
            second: 0,
            minute: 0,
            hour: 0,
            day: 1,
            month: 0,
            year: 125,
            is_dst: 0,
        },
        dbname: "shop".into(),
        server_version: "15.20".into(),
        dump_version: "15.20".into(),
        entries: vec![
            create(10, ObjectType::Table, TABLE, "t"),
            acl,
            create(11, ObjectType::Table, QUOTED, "a \"b\"\nc"),
            create(12, ObjectType::Sequence, SEQUENCE, "s"),
            create(13, ObjectType::MaterializedView, VIEW, "v"),
            blobs,
            index,
        ],
        data: HashMap::new(),
        blobs: HashMap::new(),
    };
    write_archive(directory, &archive).expect("an archive");
}

/// Creates a whole archive, with its manifest, in a directory that exists.
pub fn create(directory: &Path, codec: Codec) {
    describe(directory, ArchiveVersion::new(1, 16, 0));
    let compression: Compression = codec.name().parse().expect("a compression");
    let mut encoder = Encoder::new(compression).expect("an encoder");
    let mut toc = Toc::read(directory).expect("a table of contents");
    let mut files = Vec::new();
    for (oid, name, rows) in
        [(TABLE, "t", "1\tone\n2\ttwo\n3\tthree\n"), (QUOTED, "a \"b\"\nc", "")]
    {
        let copy_statement = copy_statement(&format!("public.{name}"), &["id", "name"]);
        let table = TableData {
            oid,
            created_by: Creator::Archive,
            copy_statement: &copy_statement,
            after: &[],
        };
        toc.add_table_data(table).expect("an entry");
        let file = data_file_name(oid) + codec.extension();
        let mut writer =
            encoder.start(File::create(directory.join(&file)).expect("a file")).expect("a file");
        writer.write_all(rows.as_bytes()).expect("rows");
        let (written, _) = writer.finish().expect("a file");
        files.push(FileRecord {
            name: file,
            schema: Some("public".into()),
            relation: Some(name.into()),
            rows: Some(written.rows),
            bytes: written.bytes,
            stored_bytes: written.stored_bytes,
            algorithm: Algorithm::Xxh3,
            checksum: written.checksum,
        });
    }
    let sequence = SequenceSet {
        oid: SEQUENCE,
        created_by: Creator::Archive,
        qualified_name: "public.s",
        last_value: 3,
        is_called: true,
    };
    toc.add_sequence_set(sequence).expect("an entry");
    let view = MaterializedViewData { oid: VIEW, qualified_name: "public.v", after: &[] };
    toc.add_materialized_view_data(view).expect("an entry");
    toc.set_codec(codec).expect("a header that can say it");
    toc.write(directory).expect("a table of contents");

    let mut list = String::new();
    for oid in [7001, 7002] {
        let file = format!("blob_{oid}.dat");
        list += &format!("{oid} {file}\n");
        let stored = compress(b"a large object", codec);
        fs::write(directory.join(file + codec.extension()), stored).expect("a large object");
    }
    fs::write(directory.join("blobs.toc"), list).expect("a list");
    add_manifest(directory, codec, files);
}

/// A stream of other programs, without the end of rows that ours have.
pub fn compress(content: &[u8], codec: Codec) -> Vec<u8> {
    match codec {
        Codec::None => content.to_vec(),
        Codec::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            encoder.write_all(content).expect("memory");
            encoder.finish().expect("memory")
        }
        Codec::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(content).expect("memory");
            encoder.finish().expect("memory")
        }
        Codec::Zstd => zstd::encode_all(content, 0).expect("memory"),
    }
}

fn add_manifest(directory: &Path, codec: Codec, mut files: Vec<FileRecord>) {
    for name in [TOC_FILE_NAME, "blobs.toc", "blob_7001.dat", "blob_7002.dat"] {
        let is_compressed = name.starts_with("blob_");
        let name = name.to_owned() + if is_compressed { codec.extension() } else { "" };
        let content = fs::read(directory.join(&name)).expect("a file");
        files.push(FileRecord {
            name,
            schema: None,
            relation: None,
            rows: None,
            bytes: content.len() as u64,
            stored_bytes: content.len() as u64,
            algorithm: Algorithm::Xxh3,
            checksum: Checksum::of(&content),
        });
    }
    let summary = Summary {
        format_version: FORMAT_VERSION,
        tool: "stillpoint".into(),
        server_version: "15.20".into(),
        system_identifier: None,
        database: "shop".into(),
        snapshot: "00000003-0000001B-1".into(),
        bookmark: None,
        started_at: OffsetDateTime::UNIX_EPOCH,
        finished_at: OffsetDateTime::UNIX_EPOCH,
        attempts: vec![],
        check_method: CheckMethod::Plain,
        gate: Gate::Never,
        complete: true,
        codec,
        left_out: vec![],
        ddl_changed: vec![],
    };
    write_manifest(directory, &Manifest { summary, files });
}

/// Reads the archive's manifest.
pub fn read_manifest(directory: &Path) -> Manifest {
    let bytes = fs::read(directory.join(manifest::FILE_NAME)).expect("a manifest");
    Manifest::find(&bytes).expect("a manifest").manifest
}

/// Writes the archive's manifest, with a checksum that fits.
pub fn write_manifest(directory: &Path, manifest: &Manifest) {
    let bytes = manifest.to_bytes().expect("bytes");
    fs::write(directory.join(manifest::FILE_NAME), bytes).expect("a manifest");
}
