//! Configuration tables of extensions: the extension makes them, the dump has the user's rows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stillpoint_tests::{Cluster, Session};

use crate::compare::{WAYS, assert_dumped_as_by_pg_dump};

/// By name and by age, what refers comes before what it refers to.
const SCRIPT: &str = "
CREATE TABLE @extschema@.a_part (id int, thing int);
CREATE TABLE @extschema@.m_thing (id int PRIMARY KEY, kind int);
CREATE TABLE @extschema@.z_kind (
    id int PRIMARY KEY, builtin bool NOT NULL DEFAULT false, word text,
    loud text GENERATED ALWAYS AS (upper(word)) STORED, above int REFERENCES @extschema@.z_kind);
ALTER TABLE @extschema@.a_part ADD FOREIGN KEY (thing) REFERENCES @extschema@.m_thing;
ALTER TABLE @extschema@.m_thing ADD FOREIGN KEY (kind) REFERENCES @extschema@.z_kind;
CREATE SEQUENCE @extschema@.numbers;
CREATE TABLE @extschema@.fixed (id int);
INSERT INTO @extschema@.z_kind VALUES (1, true, 'shipped');
INSERT INTO @extschema@.fixed VALUES (1);
SELECT pg_extension_config_dump('@extschema@.a_part', '');
SELECT pg_extension_config_dump('@extschema@.m_thing', '');
SELECT pg_extension_config_dump('@extschema@.z_kind', 'WHERE NOT builtin');
SELECT pg_extension_config_dump('@extschema@.numbers', '');
";

/// An extension's files in the server's directory, removed again at the end.
pub struct Extension {
    pub name: String,
    files: Vec<PathBuf>,
}

impl Extension {
    /// Installs an extension that no other process has.
    pub fn install(cluster: &Cluster, script: &str) -> Self {
        let pg_config = cluster.bindir().join("pg_config");
        let output = Command::new(pg_config).arg("--sharedir").output().expect("pg_config runs");
        let share = String::from_utf8(output.stdout).expect("the directory's name is UTF-8");
        let directory = Path::new(share.trim()).join("extension");
        let name = format!("stillpoint_test_{}_{}", std::process::id(), cluster.port());
        let files = vec![
            directory.join(format!("{name}.control")),
            directory.join(format!("{name}--1.sql")),
        ];
        let extension = Self { name, files };
        fs::write(&extension.files[0], "default_version = '1'\nrelocatable = false\n")
            .expect("the server's extension directory can be written");
        fs::write(&extension.files[1], script).expect("it can be written");
        extension
    }
}

impl Drop for Extension {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
    }
}

fn fill(session: &mut Session, schema: &str) {
    session.exec(&format!(
        "SET search_path = {schema}; \
         INSERT INTO z_kind (id, builtin, word, above) VALUES (2, false, 'mine', 1), (3, true, 'not told', 1), (4, false, NULL, 2); \
         INSERT INTO m_thing SELECT i, 2 FROM generate_series(1, 5) AS i; \
         INSERT INTO a_part SELECT i, i % 5 + 1 FROM generate_series(1, 9) AS i; \
         SELECT setval('numbers', 33); \
         RESET search_path"
    ));
}

#[test]
fn the_users_rows_of_configuration_tables_are_dumped_and_not_the_extensions_own() {
    let cluster = Cluster::start();
    let extension = Extension::install(&cluster, SCRIPT);
    cluster.create_database("source");
    let mut session = cluster.session("source");
    session.exec("CREATE SCHEMA \"con fig\"; CREATE TABLE \"con fig\".users_own (id int)");
    session.exec(&format!("CREATE EXTENSION {} SCHEMA \"con fig\"", extension.name));
    fill(&mut session, "\"con fig\"");
    // A row that says it was shipped comes with the extension or not at all.
    session.exec("DELETE FROM \"con fig\".z_kind WHERE id = 3");
    session.exec("INSERT INTO \"con fig\".users_own VALUES (8)");
    assert_dumped_as_by_pg_dump(&cluster, "source", WAYS);
}

#[test]
fn what_an_extension_asks_for_itself_is_left_to_it() {
    let cluster = Cluster::start();
    let extension = Extension::install(&cluster, SCRIPT);
    cluster.create_database("source");
    let mut session = cluster.session("source");
    session.exec(&format!("CREATE EXTENSION {}", extension.name));
    fill(&mut session, "public");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    stillpoint_tests::Stillpoint::dump(&cluster, "source", &archive).run().assert_exit(0);
    stillpoint_tests::restore_into(&cluster, &archive, "restored");
    let mut restored = cluster.session("restored");
    assert_eq!(restored.texts("SELECT id::text FROM z_kind ORDER BY id"), ["1", "2", "4"]);
    assert_eq!(restored.number("SELECT count(*) FROM fixed"), 1);
    assert_eq!(restored.number("SELECT last_value FROM numbers"), 33);
}
