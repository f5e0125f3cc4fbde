//! What is written reads back, and what was changed is noticed.

use super::*;

fn sample() -> Manifest {
    let moment = OffsetDateTime::from_unix_timestamp(1_760_000_000).expect("a moment");
    Manifest {
        summary: Summary {
            format_version: FORMAT_VERSION,
            tool: "stillpoint 0.1.0".to_owned(),
            server_version: "15.20".to_owned(),
            system_identifier: Some("7570000000000000001".to_owned()),
            database: "shop".to_owned(),
            snapshot: "00000003-0000001B-1".to_owned(),
            bookmark: None,
            started_at: moment,
            finished_at: moment + time::Duration::milliseconds(1500),
            attempts: vec![Attempt {
                snapshot: "00000003-0000001B-1".to_owned(),
                started_at: moment,
                seconds: 1.25,
                changes: vec![Change {
                    relation: 16385,
                    schema: "public".to_owned(),
                    name: "a \"quoted\"\nname".to_owned(),
                    reasons: vec!["replaced".to_owned()],
                    rows_kept: false,
                    harmless: false,
                    ancestors: vec!["public.p".to_owned()],
                }],
                outcome: AttemptOutcome::LeftOut,
                timings: Timings::default(),
            }],
            check_method: CheckMethod::Plain,
            gate: Gate::Never,
            complete: false,
            codec: Codec::Gzip,
            left_out: vec![LeftOut {
                schema: "public".to_owned(),
                relation: "a \"quoted\"\nname".to_owned(),
                reasons: vec!["replaced".to_owned()],
                ancestors: vec!["public.p".to_owned()],
            }],
            ddl_changed: vec![],
        },
        files: vec![
            FileRecord {
                name: "3001.dat.gz".to_owned(),
                schema: Some("public".to_owned()),
                relation: Some("t".to_owned()),
                rows: Some(900),
                bytes: 12_345,
                stored_bytes: 678,
                algorithm: Algorithm::Xxh3,
                checksum: Checksum::from(0xabc),
            },
            FileRecord {
                name: "toc.dat".to_owned(),
                schema: None,
                relation: None,
                rows: None,
                bytes: 99,
                stored_bytes: 99,
                algorithm: Algorithm::Xxh3,
                checksum: Checksum::of(b"toc"),
            },
        ],
    }
}

fn text() -> String {
    String::from_utf8(sample().to_bytes().expect("bytes")).expect("UTF-8")
}

/// What the manifest says, if it is undamaged.
fn intact(bytes: &[u8]) -> Option<Manifest> {
    Manifest::find(bytes).ok().filter(|found| found.intact).map(|found| found.manifest)
}

#[test]
fn a_manifest_reads_back_as_it_was_written() {
    assert_eq!(intact(text().as_bytes()), Some(sample()));
}

#[test]
fn every_key_and_every_file_has_a_line_of_its_own() {
    let text = text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "{");
    assert_eq!(lines[1], "\"format_version\": 1,");
    assert!(text.contains("\n\"started_at\": \"2025-10-09T08:53:20Z\",\n"), "{text}");
    assert!(
        text.contains(
            "\n{\"name\": \"3001.dat.gz\", \"schema\": \"public\", \"relation\": \"t\", \
             \"rows\": 900, \"bytes\": 12345, \"stored_bytes\": 678, \
             \"algorithm\": \"xxh3-128\", \
             \"checksum\": \"00000000000000000000000000000abc\"},\n"
        ),
        "{text}"
    );
    assert!(lines[lines.len() - 2].starts_with("\"manifest_checksum\": \""), "{text}");
    assert_eq!(lines[lines.len() - 1], "}");
}

#[test]
fn any_changed_byte_is_noticed() {
    let bytes = text().into_bytes();
    for position in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[position] ^= 1;
        assert!(intact(&damaged).is_none(), "byte {position}");
    }
    for length in 0..bytes.len() {
        assert!(intact(&bytes[..length]).is_none(), "cut to {length}");
    }
}

#[test]
fn a_damaged_manifest_that_still_parses_is_found_as_such() {
    let damaged = text().replace("\"rows\": 900", "\"rows\": 901");
    let found = Manifest::find(damaged.as_bytes()).expect("it parses");
    assert!(!found.intact);
    assert_eq!(found.manifest.files[0].rows, Some(901));
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let newer = text().replace("\"format_version\": 1,", "\"format_version\": 7,");
    let error = Manifest::find(newer.as_bytes()).expect_err("newer");
    assert_eq!(error.to_string(), "manifest format version 7 is not supported");
    assert!(error.hint().expect("a hint").contains("up to format version 1"));
}

#[test]
fn keys_and_words_of_newer_versions_are_passed_over() {
    let mut value: serde_json::Value = serde_json::from_str(&text()).expect("JSON");
    value["compressed_by"] = "a later version".into();
    value["files"][0]["segment"] = 3.into();
    value["gate"] = "sometimes".into();
    value["attempts"][0]["outcome"] = "postponed".into();
    let bytes = serde_json::to_vec(&value).expect("bytes");
    let found = Manifest::find(&bytes).expect("a manifest");
    assert_eq!(found.manifest.files, sample().files);
    assert_eq!(found.manifest.summary.gate, Gate::Unknown);
    assert_eq!(found.manifest.summary.attempts[0].outcome, AttemptOutcome::Unknown);
}

#[test]
fn a_checksum_is_written_as_xxh128sum_writes_it() {
    assert_eq!(Checksum::of(b"").to_string(), "99aa06d3014798d86001c324468d497f");
    assert!("99aa06d3014798d86001c324468d497f".parse::<Checksum>().is_ok());
    assert!("99aa06d3".parse::<Checksum>().is_err());
    assert!("+9aa06d3014798d86001c324468d497f".parse::<Checksum>().is_err());
}
