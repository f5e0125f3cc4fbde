//! `-n`, `-N`, `-t` and `-T` mean what they mean to `pg_dump`: the archives list the same entries.

use std::thread;

use stillpoint_tests::{Cluster, Stillpoint, pg_dump, pg_restore};

const SCHEMA: &str = r#"
CREATE SCHEMA s; CREATE SCHEMA "S"; CREATE SCHEMA s2; CREATE SCHEMA "we.ird"; CREATE SCHEMA "Ä";
CREATE TABLE public.t (id serial PRIMARY KEY, word text);
CREATE TABLE public."T" (id int GENERATED ALWAYS AS IDENTITY);
CREATE TABLE public."Ärger" (id int); CREATE TABLE public."ärger" (id int);
CREATE TABLE s.t (id int); CREATE TABLE s.t1 (id int); CREATE TABLE s.t2 (id int);
CREATE TABLE s."t$x" (id int); CREATE TABLE s."t[]" (id int);
CREATE TABLE "S".t (id int); CREATE TABLE "Ä"."ö" (id int);
CREATE TABLE "we.ird"."a""b" (id int); CREATE TABLE "we.ird"."new
line" (id int); CREATE TABLE "we.ird"."back\slash*?" (id int);
CREATE TABLE s2.alone (id int);
CREATE VIEW s.v AS SELECT * FROM s.t; CREATE MATERIALIZED VIEW s.m AS SELECT * FROM s.v;
CREATE SEQUENCE s.free; CREATE SEQUENCE s.owned OWNED BY s.t1.id;
CREATE TABLE s.p (id int, k text) PARTITION BY RANGE (id);
CREATE TABLE s.p_a PARTITION OF s.p FOR VALUES FROM (1) TO (10) PARTITION BY LIST (k);
CREATE TABLE s2.p_a_x PARTITION OF s.p_a FOR VALUES IN ('x');
CREATE TABLE s.p_a_d PARTITION OF s.p_a DEFAULT;
CREATE TABLE s.p_b PARTITION OF s.p DEFAULT;
CREATE TABLE s.parent (id int); CREATE TABLE s.child () INHERITS (s.parent);
CREATE EXTENSION file_fdw;
CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
CREATE FOREIGN TABLE s.lines (line text) SERVER files OPTIONS (filename '/dev/null');
CREATE FOREIGN TABLE s.p_f PARTITION OF s.p FOR VALUES FROM (50) TO (60)
    SERVER files OPTIONS (filename '/dev/null');
INSERT INTO s.p SELECT i, CASE WHEN i % 2 = 0 THEN 'x' ELSE 'y' END
  FROM generate_series(1, 20) AS i;
SELECT lo_from_bytea(4711, 'abc');
"#;

/// Options that mean the same to both.
const SAME: &[&[&str]] = &[
    &[],
    &["-n", "s"],
    &["-n", "S"],
    &["-n", "\"S\""],
    &["-n", "s*"],
    &["-n", "s|s2", "-N", "s2"],
    &["-n", "s?", "-n", "public"],
    &["-n", "\"we.ird\"", "-T", "*.new*"],
    &["-N", "s"],
    &["-N", "s*", "-N", "nosuch"],
    &["-n", "Ä"],
    &["-t", "t"],
    &["-t", "\"T\""],
    &["-t", "T", "-t", "S.T1"],
    &["-t", "Ärger"],
    &["-t", "ÄRGER"],
    &["-t", "ärger"],
    &["-t", "*r?er"],
    &["-t", "*.t?"],
    &["-t", "s.t[12]"],
    &["-t", "s.t(1|2)"],
    &["-t", "s.t$x"],
    &["-t", "s.t[]"],
    &["-t", "selected.s.t"],
    &["-t", "SELECTED.s.t"],
    &["-t", "\"we.ird\".\"a\"\"b\""],
    &["-t", "\"we.ird\".*", "-T", "*.\"back\\slash*?\""],
    &["-t", "*.\"new\nline\""],
    &["-t", "s.v"],
    &["-t", "s.m"],
    &["-t", "s.v", "-t", "s.m", "-t", "s.t"],
    &["-t", "s.free"],
    &["-t", "s.owned"],
    &["-t", "s.t1"],
    &["-t", "s.t1", "-T", "s.owned"],
    &["-t", "t_id_seq"],
    &["-t", "s.parent"],
    &["-t", "s.child"],
    &["-t", "s.lines"],
    &["-t", "s.p_b"],
    &["-n", "s", "-t", "s2.alone"],
    &["-N", "s", "-t", "s.t", "-t", "t"],
    &["-T", "*"],
    &["-T", "s.p_b"],
    &["-T", "s.t*", "-T", "nosuch", "-T", "s.m", "-T", "s.v"],
    &["-T", "s.free"],
    &["-t", "pg_catalog.pg_am"],
    &["-t", "pg_am"],
    &["-n", "information_schema"],
];

/// Where a partitioned table is named: what it means to us, said to `pg_dump` in many words.
const PARTITIONED: &[(&[&str], &[&str])] = &[
    (&["-t", "s.p"], &["-t", "s.p", "-t", "s.p_*", "-t", "s2.p_*"]),
    (&["-t", "s.p_a"], &["-t", "s.p_a", "-t", "s.p_a_d", "-t", "s2.p_a_x"]),
    (&["-t", "s.p", "-T", "s.p_b"], &["-t", "s.p", "-t", "*.p_*", "-T", "s.p_b"]),
    (&["-t", "s.p", "-T", "s.p_a"], &["-t", "s.p", "-t", "s.p_b", "-t", "s.p_f"]),
    (&["-T", "s.p"], &["-T", "s.p", "-T", "s.p_*", "-T", "s2.p_*"]),
    (&["-T", "s.p_a"], &["-T", "s.p_a", "-T", "s.p_a_d", "-T", "s2.p_a_x"]),
    (&["-n", "s", "-T", "s.p"], &["-n", "s", "-T", "s.p", "-T", "s.p_*"]),
];

fn start() -> Cluster {
    let cluster = Cluster::start();
    cluster.create_database("selected");
    cluster.session("selected").exec(SCHEMA);
    cluster
}

/// What an archive lists, without numbers and in the order of the alphabet.
#[track_caller]
fn entries(cluster: &Cluster, archive: &std::path::Path) -> Vec<String> {
    let finished = pg_restore(cluster, "selected").arg("-l").arg(archive).run();
    finished.assert_exit(0);
    let mut entries: Vec<String> = finished
        .stdout
        .lines()
        .filter(|line| !line.starts_with(';'))
        // "3363; 0 16503 TABLE DATA s t postgres"
        .map(|line| line.splitn(4, ' ').nth(3).unwrap_or(line).to_owned())
        .collect();
    entries.sort();
    entries
}

#[track_caller]
fn assert_same_entries(cluster: &Cluster, ours: &[&str], theirs: &[&str]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (mine, stock) = (directory.path().join("ours"), directory.path().join("theirs"));
    let finished = Stillpoint::dump(cluster, "selected", &mine).args(ours).run();
    finished.assert_exit(0);
    pg_dump(cluster, "selected").arg("-Fd").arg("-f").arg(&stock).args(theirs).run().assert_exit(0);
    let (found, expected) = (entries(cluster, &mine), entries(cluster, &stock));
    let surplus: Vec<_> = found.iter().filter(|entry| !expected.contains(entry)).collect();
    let missing: Vec<_> = expected.iter().filter(|entry| !found.contains(entry)).collect();
    assert!(
        found == expected,
        "{ours:?} against {theirs:?}\nonly ours: {surplus:#?}\nonly pg_dump's: {missing:#?}\n{}",
        finished.scene()
    );
}

/// Two at a time: the programs do the work, and most of it is waiting.
#[track_caller]
fn assert_all_the_same(cluster: &Cluster, cases: &[(&[&str], &[&str])]) {
    thread::scope(|scope| {
        for half in cases.chunks(cases.len().div_ceil(2)) {
            scope.spawn(move || {
                for (ours, theirs) in half {
                    assert_same_entries(cluster, ours, theirs);
                }
            });
        }
    });
}

#[test]
fn what_is_selected_is_what_pg_dump_selects() {
    let cases: Vec<_> = SAME.iter().map(|options| (*options, *options)).collect();
    assert_all_the_same(&start(), &cases);
}

#[test]
fn a_partitioned_table_stands_for_its_partitions() {
    assert_all_the_same(&start(), PARTITIONED);
}

#[test]
fn names_without_a_schema_are_those_of_the_search_path() {
    let cluster = start();
    let mut session = cluster.session("selected");
    session.exec("ALTER DATABASE selected SET search_path = s, s2, public");
    for options in [&["-t", "t"], &["-t", "t*"], &["-t", "alone"], &["-T", "t"]] {
        assert_same_entries(&cluster, options, options);
    }
    session.exec("ALTER DATABASE selected SET search_path = ''");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    let finished = Stillpoint::dump(&cluster, "selected", &archive).args(["-t", "t"]).run();
    finished.assert_exit(1).assert_stderr("no matching relation found for \"t\"");
    let finished = Stillpoint::dump(&cluster, "selected", &archive)
        .args(["-t", "t"])
        .env("PGOPTIONS", "-c search_path=s2,s")
        .run();
    finished.assert_exit(0);
    let found = entries(&cluster, &archive);
    assert_eq!(found, ["TABLE DATA s t postgres", "TABLE s t postgres"]);
}

#[test]
fn temporary_tables_of_other_sessions_are_never_selected() {
    let cluster = start();
    let mut other = cluster.session("selected");
    other.exec("CREATE TEMPORARY TABLE t1 (id int); INSERT INTO t1 VALUES (1)");
    other.exec("CREATE TEMPORARY TABLE only_temporary (id int)");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    let finished = Stillpoint::dump(&cluster, "selected", &archive).args(["-t", "*.t1"]).run();
    finished.assert_exit(0);
    let found = entries(&cluster, &archive);
    assert!(found.contains(&"TABLE DATA s t1 postgres".to_owned()), "{found:?}");
    assert!(!found.iter().any(|entry| entry.contains("pg_temp")), "{found:?}");

    let archive = directory.path().join("none");
    let options = ["-t", "*.only_temporary"];
    let finished = Stillpoint::dump(&cluster, "selected", &archive).args(options).run();
    finished.assert_exit(1).assert_stderr("no matching relation found for \"*.only_temporary\"");
}

#[test]
fn members_of_extensions_are_selected_as_by_pg_dump() {
    let cluster = start();
    let mut session = cluster.session("selected");
    // What an extension's own script would do, without its files.
    session.exec(
        "CREATE SCHEMA member; CREATE SCHEMA around; \
         CREATE TABLE member.conf (id int); INSERT INTO member.conf VALUES (1), (2); \
         CREATE TABLE around.conf (id int); INSERT INTO around.conf VALUES (1), (2); \
         CREATE TABLE around.fixed (id int); CREATE SEQUENCE around.numbers; \
         CREATE TABLE member.users_own (id int); \
         ALTER EXTENSION file_fdw ADD SCHEMA member; \
         ALTER EXTENSION file_fdw ADD TABLE member.conf; \
         ALTER EXTENSION file_fdw ADD TABLE around.conf; \
         ALTER EXTENSION file_fdw ADD TABLE around.fixed; \
         ALTER EXTENSION file_fdw ADD SEQUENCE around.numbers; \
         UPDATE pg_extension \
            SET extconfig = ARRAY['member.conf', 'around.conf', 'around.numbers']::regclass[]::oid[], \
                extcondition = ARRAY['WHERE id > 1', '', ''] \
          WHERE extname = 'file_fdw'",
    );
    let cases: &[&[&str]] = &[
        &[],
        &["-n", "member"],
        &["-n", "around"],
        &["-N", "around"],
        &["-N", "member"],
        &["-t", "member.conf"],
        &["-t", "around.*"],
        &["-t", "around.numbers"],
        &["-t", "around.fixed"],
        &["-T", "around.conf"],
        &["-t", "member.*", "-N", "member"],
    ];
    let cases: Vec<_> = cases.iter().map(|options| (*options, *options)).collect();
    assert_all_the_same(&cluster, &cases);
}

/// Options, exit status and all that is said.
const REFUSED: &[(&[&str], i32, &str)] = &[
    (&["-t", "nosuch"], 1, "no matching relation found for \"nosuch\""),
    (&["-t", "t", "-t", "s.nosuch*"], 1, "no matching relation found for \"s.nosuch*\""),
    (&["-n", "nosuch"], 1, "no matching schema found for \"nosuch\""),
    (&["-n", "s", "-n", "\"no such\""], 1, "no matching schema found for \"\"no such\"\""),
    (&["-t", "t_pkey"], 1, "no matching relation found for \"t_pkey\""),
    (&["-t", "other.s.t"], 1, "cross-database references are not implemented: \"other.s.t\""),
    (&["-T", "other.s.t"], 1, "cross-database references are not implemented: \"other.s.t\""),
    (&["-n", "other.s"], 1, "cross-database references are not implemented: \"other.s\""),
    (&["-N", "other.s"], 1, "cross-database references are not implemented: \"other.s\""),
    (&["-t", "a.b.c.d"], 64, "improper qualified name (too many dotted names): \"a.b.c.d\""),
    (&["-n", "a.b.c"], 64, "improper qualified name (too many dotted names): \"a.b.c\""),
    (&["-t", ""], 64, "empty name in pattern \"\""),
    (&["-t", "s."], 64, "empty name in pattern \"s.\""),
    (
        &["-t", "t("],
        1,
        "could not find the relations that match the patterns: invalid regular expression: \
         parentheses () not balanced",
    ),
    (
        &["-N", "t("],
        1,
        "could not find the schemas that match the patterns: invalid regular expression: \
         parentheses () not balanced",
    ),
];

#[test]
fn a_pattern_that_means_nothing_is_an_error_that_names_it() {
    let cluster = start();
    cluster.allow_log("invalid regular expression");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    for (options, code, message) in REFUSED {
        let finished = Stillpoint::dump(&cluster, "selected", &archive).args(*options).run();
        finished.assert_exit(*code);
        assert_eq!(finished.stderr, format!("stillpoint: error: {message}\n"), "{options:?}");
        assert_eq!(finished.report()["outcome"], "failed");
        assert!(!archive.exists() && !archive.with_extension("partial").exists());
    }
}
