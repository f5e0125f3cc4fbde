//! Names that mean something to a shell, to SQL, to COPY or to an archive.

use stillpoint_tests::Cluster;

use crate::compare::{WAYS, assert_dumped_as_by_pg_dump};

/// 63 bytes, the longest name there is; the last character takes two of them.
const LONGEST: &str = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnné";

const NAMES: &[&str] = &[
    "Upper Case",
    "quote\"s and 'apostrophes'",
    "line\nbreak\r\n",
    "tab\tand\u{b}more",
    "back\\slash \\n \\.",
    "percent %s %d %%",
    "dollar $1 $$ $x$",
    "star * ? [a-z]+ (x|y)",
    "semi;colon -- comment /* open",
    "a.b.c",
    "..",
    "/",
    "-t",
    " ",
    "Ärger ß İ \u{1F600} 漢字",
    "select",
    "user",
    "e\u{301}",
    LONGEST,
];

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[test]
fn names_of_any_spelling_are_dumped_as_by_pg_dump() {
    assert_eq!(LONGEST.len(), 63);
    let cluster = Cluster::start();
    cluster.create_database("source");
    let mut session = cluster.session("source");
    for (number, name) in NAMES.iter().enumerate() {
        let name = quoted(name);
        session.exec(&format!(
            "CREATE SCHEMA {name}; \
             CREATE TABLE {name}.{name} ({name} int, other serial); \
             INSERT INTO {name}.{name} SELECT i FROM generate_series(0, {number}) AS i; \
             CREATE VIEW {name}.\"v\" AS SELECT {name} FROM {name}.{name}; \
             CREATE MATERIALIZED VIEW {name}.\"m\" AS SELECT * FROM {name}.\"v\"; \
             CREATE SEQUENCE {name}.\"s\"; SELECT setval('{}.\"s\"', {number} + 1)",
            name.replace('\'', "''")
        ));
    }
    assert_dumped_as_by_pg_dump(&cluster, "source", WAYS);
}

#[test]
fn a_database_of_any_name_is_dumped() {
    let cluster = Cluster::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (number, name) in ["Up per", "it's", "a=b", "back\\slash", "%s", "Ä"].iter().enumerate() {
        cluster.create_database(name);
        let quoted = name.replace('\\', "\\\\").replace('\'', "\\'");
        let conninfo = format!("dbname='{quoted}'");
        let archive = directory.path().join(number.to_string());
        let finished = stillpoint_tests::Stillpoint::dump(&cluster, &conninfo, &archive).run();
        finished.assert_exit(0);
        assert_eq!(finished.report()["database"], *name);
    }
}
