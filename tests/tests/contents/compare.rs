//! Dumping a database with both tools, restoring both archives, and comparing all three.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use stillpoint_tests::{Cluster, Finished, Session, Stillpoint, pg_dump, pg_restore, table_digest};

/// Options of dumps that must all give the same: one worker and several, plain and compressed.
pub const WAYS: &[&[&str]] = &[&["-j1", "-Z", "none"], &["-j2", "-Z", "gzip"]];

/// What the rows' text would depend on besides the rows.
const SETTINGS: &str = "SET search_path = ''; SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; \
     SET extra_float_digits = 3; SET bytea_output = 'hex'; SET timezone = 'UTC'; \
     SET quote_all_identifiers = off; SET default_transaction_read_only = off";

const RELATIONS: &str = "\
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), c.relkind, c.relispopulated
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'stillpoint')
   AND c.relkind IN ('r', 'p', 'm', 'S')";

const LARGE_OBJECTS: &str = "\
SELECT pg_catalog.concat_ws(' ', 'large object', m.oid),
       pg_catalog.concat_ws(', ', pg_catalog.md5(pg_catalog.lo_get(m.oid)),
           pg_catalog.pg_get_userbyid(m.lomowner), m.lomacl,
           pg_catalog.obj_description(m.oid, 'pg_largeobject'))
  FROM pg_catalog.pg_largeobject_metadata AS m";

/// The data of a database: tables, sequences, materialized views and large objects by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data(BTreeMap<String, String>);

impl Data {
    #[track_caller]
    pub fn read(session: &mut Session) -> Self {
        session.exec(SETTINGS);
        let mut data = BTreeMap::new();
        for row in session.rows(RELATIONS) {
            let row: Vec<String> = row.into_iter().flatten().collect();
            let [name, kind, populated] = row.try_into().expect("no column is NULL");
            let content = match (kind.as_str(), populated.as_str()) {
                ("r", _) => table_digest(session, &format!("ONLY {name}")).to_string(),
                ("m", "f") => "not populated".to_owned(),
                ("S", _) => sequence(session, &name),
                _ => table_digest(session, &name).to_string(),
            };
            data.insert(name, content);
        }
        for row in session.rows(LARGE_OBJECTS) {
            let row: Vec<String> = row.into_iter().flatten().collect();
            let [name, content] = row.try_into().expect("neither column is NULL");
            data.insert(name, content);
        }
        Self(data)
    }

    /// What there is of a relation.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    #[track_caller]
    pub fn assert_equals(&self, expected: &Self, what: &str, scene: &Finished) {
        let names: BTreeSet<_> = self.0.keys().chain(expected.0.keys()).collect();
        let differing: Vec<_> = names
            .into_iter()
            .filter(|name| self.0.get(*name) != expected.0.get(*name))
            .map(|name| {
                format!("{name}: expected {:?}, found {:?}", expected.0.get(name), self.0.get(name))
            })
            .collect();
        assert!(differing.is_empty(), "{what}:\n{}\n{}", differing.join("\n"), scene.scene());
    }
}

fn sequence(session: &mut Session, name: &str) -> String {
    session.text(&format!(
        "SELECT (v.last_value, v.is_called, s.seqtypid::pg_catalog.regtype, s.seqstart, \
                 s.seqincrement, s.seqmax, s.seqmin, s.seqcache, s.seqcycle)::text \
           FROM {name} AS v, pg_catalog.pg_sequence AS s \
          WHERE s.seqrelid = '{}'::pg_catalog.regclass",
        name.replace('\'', "''")
    ))
}

/// The definitions of a database, as a script.
#[track_caller]
pub fn definitions(cluster: &Cluster, database: &str) -> String {
    let finished = pg_dump(cluster, database).arg("--schema-only").run();
    finished.assert_exit(0);
    // These two lines hold a random word.
    let lines = finished.stdout.lines();
    lines.filter(|line| !line.contains("restrict ")).collect::<Vec<_>>().join("\n")
}

/// Restores an archive with stock `pg_restore` into a new database with the encoding of the
/// dumped one. Not one error may come, not a word of complaint.
#[track_caller]
fn restore(cluster: &Cluster, archive: &Path, database: &str, like: &str, jobs: &str) {
    let mut session = cluster.session("postgres");
    let encoding = session.text(&format!(
        "SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = '{like}'"
    ));
    session.exec(&format!("DROP DATABASE IF EXISTS {database}"));
    session.exec(&format!("CREATE DATABASE {database} TEMPLATE template0 ENCODING '{encoding}'"));
    let finished = pg_restore(cluster, database).args([jobs, "--exit-on-error"]).arg(archive).run();
    finished.assert_exit(0).assert_silent();
}

/// Dumps the database with `pg_dump` and with stillpoint in each of the ways. What is restored
/// must hold the same data as the source, and the same definitions as `pg_dump` gives.
#[track_caller]
pub fn assert_dumped_as_by_pg_dump(cluster: &Cluster, source: &str, ways: &[&[&str]]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let stock = directory.path().join("stock");
    pg_dump(cluster, source).arg("-Fd").arg("-f").arg(&stock).run().assert_exit(0);
    // One job: the order that foreign keys of an extension's tables ask for is in pg_dump's
    // archive as the order of the entries only, to which several jobs do not keep.
    restore(cluster, &stock, "by_pg_dump", source, "-j1");
    let expected = Data::read(&mut cluster.session(source));
    let expected_definitions = definitions(cluster, "by_pg_dump");

    for (number, options) in ways.iter().enumerate() {
        let archive = directory.path().join(number.to_string());
        let finished = Stillpoint::dump(cluster, source, &archive).args(*options).run();
        finished.assert_exit(0);
        restore(cluster, &archive, "restored", source, if number == 0 { "-j2" } else { "-j1" });
        let found = Data::read(&mut cluster.session("restored"));
        found.assert_equals(&expected, "not the data of the source", &finished);
        let by_pg_dump = Data::read(&mut cluster.session("by_pg_dump"));
        found.assert_equals(&by_pg_dump, "not the data that pg_dump gives", &finished);
        assert_same_text(&definitions(cluster, "restored"), &expected_definitions);
    }
}

/// What `pg_restore` writes as a script must be the same for both archives but for the order of
/// tables and for quotes, which stillpoint always writes.
#[track_caller]
pub fn assert_same_script(cluster: &Cluster, source: &str, options: &[&[&str]]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (ours, stock) = (directory.path().join("ours"), directory.path().join("stock"));
    Stillpoint::dump(cluster, source, &ours).run().assert_exit(0);
    pg_dump(cluster, source).arg("-Fd").arg("-f").arg(&stock).run().assert_exit(0);
    for options in options {
        let script = |archive: &Path| {
            // An unconnected pg_restore writes a script.
            let program = cluster.bindir().join("pg_restore");
            let output =
                Command::new(program).args(*options).args(["-f", "-"]).arg(archive).output();
            let output = output.expect("pg_restore runs");
            assert!(output.status.success(), "{options:?}: {output:?}");
            let text = String::from_utf8_lossy(&output.stdout).replace('"', "");
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.retain(|line| !line.contains("restrict "));
            lines.sort();
            lines.join("\n")
        };
        assert_same_text(&script(&ours), &script(&stock));
    }
}

#[track_caller]
fn assert_same_text(found: &str, expected: &str) {
    let (found, expected): (Vec<_>, Vec<_>) = (found.lines().collect(), expected.lines().collect());
    let differing = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    let at = differing.unwrap_or(found.len().min(expected.len()));
    assert!(
        found == expected,
        "definitions differ from line {}:\nexpected {:#?}\nfound {:#?}",
        at + 1,
        &expected[at.saturating_sub(3)..expected.len().min(at + 3)],
        &found[at.saturating_sub(3)..found.len().min(at + 3)],
    );
}
