//! The manifest tells what is in the archive's directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use stillpoint_tests::{Cluster, Stillpoint};

#[test]
fn the_manifest_names_every_file_with_its_rows_and_bytes() {
    let cluster = Cluster::start();
    cluster.create_database("source");
    let mut session = cluster.session("source");
    session.exec(
        "CREATE TABLE \"T\" AS SELECT generate_series(1, 1000) AS id; \
         CREATE TABLE empty (id int); \
         CREATE TABLE nothing (); INSERT INTO nothing SELECT FROM generate_series(1, 3); \
         CREATE TABLE lines (word text); INSERT INTO lines VALUES (E'a\\nb\\n'), (NULL); \
         CREATE TABLE p (id int) PARTITION BY LIST (id); \
         CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1); INSERT INTO p VALUES (1), (1); \
         CREATE VIEW v AS SELECT 1; CREATE SEQUENCE s; SELECT lo_from_bytea(4711, 'abc')",
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (method, suffix) in [("none", ""), ("gzip:9", ".gz")] {
        let archive = directory.path().join(method);
        let finished =
            Stillpoint::dump(&cluster, "source", &archive).args(["-j2", "-Z", method]).run();
        finished.assert_exit(0);
        // Nobody else can read a dump, whatever the umask.
        let mode = fs::metadata(&archive).expect("the archive is there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        let text = fs::read_to_string(archive.join("manifest.json")).expect("there is a manifest");
        let manifest: Value = serde_json::from_str(&text).expect("it is JSON");

        let files = manifest["files"].as_array().expect("files are a list");
        let named: BTreeSet<String> = files.iter().map(|file| text_of(&file["name"])).collect();
        let mut found: BTreeSet<String> = fs::read_dir(&archive)
            .expect("the archive is a directory")
            .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
            .collect();
        assert!(found.remove("manifest.json"));
        assert_eq!(named, found);
        assert_eq!(named.len(), files.len(), "a file is named twice");

        let mut rows = BTreeMap::new();
        for file in files {
            let name = text_of(&file["name"]);
            let size = fs::metadata(archive.join(&name)).expect("the file is there").len();
            assert_eq!(file["stored_bytes"], size, "{name}");
            assert_eq!(file["algorithm"], "xxh3-128");
            if file["relation"].is_null() {
                assert!(name == "toc.dat" || name.starts_with("blob"), "{name}");
                assert_eq!((&file["rows"], &file["schema"]), (&Value::Null, &Value::Null));
                continue;
            }
            assert!(name.ends_with(&format!(".dat{suffix}")), "{name}");
            if suffix.is_empty() {
                let bytes = fs::read(archive.join(&name)).expect("the file is there");
                assert!(bytes.ends_with(b"\\.\n\n\n"), "{name}");
                assert_eq!(file["bytes"], bytes.len() - 5, "{name}");
            }
            rows.insert(text_of(&file["relation"]), file["rows"].as_i64());
        }
        let expected = [("T", 1000), ("empty", 0), ("lines", 2), ("nothing", 3), ("p1", 2)];
        let expected = expected.map(|(name, rows)| (name.to_owned(), Some(rows)));
        assert_eq!(rows, BTreeMap::from(expected));

        assert_eq!(manifest["format_version"], 1);
        assert_eq!(manifest["tool"], format!("stillpoint {}", env!("CARGO_PKG_VERSION")));
        assert_eq!(manifest["codec"], method.trim_end_matches(":9"));
        assert_eq!(manifest["complete"], true);
        assert_eq!(manifest["database"], "source");
        let version = session.text("SELECT current_setting('server_version')");
        let version = version.split(' ').next().unwrap_or_default();
        assert_eq!(manifest["server_version"], version);
        let system = session.text("SELECT system_identifier FROM pg_control_system()");
        assert_eq!(manifest["system_identifier"], system);
        let attempt = &manifest["attempts"][0];
        assert_eq!(manifest["snapshot"], attempt["snapshot"]);
        assert!(!text_of(&manifest["snapshot"]).is_empty());
        // The report is the manifest without its files.
        let report = finished.report();
        for key in ["snapshot", "attempts", "started_at", "finished_at", "check_method", "codec"] {
            assert_eq!(report[key], manifest[key], "{key}");
        }
        assert_eq!(text_of(&report["archive"]), archive.to_string_lossy());
        for time in [&manifest["started_at"], &manifest["finished_at"], &attempt["started_at"]] {
            assert!(text_of(time).ends_with('Z'), "not in UTC: {time}");
        }
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_owned()
}
