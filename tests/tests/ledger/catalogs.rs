//! Catalogs, swaps by hand, and what the server does not tell the library in so many words.

use postgres::error::SqlState;
use stillpoint_tests::ledger::{Effect, Entry, Mark, Scope, Storage, findings};

use crate::{DATABASE, Scene, T, sorted, whole};

const TWO: &str = "CREATE TABLE a (id int); CREATE TABLE b (id int)";

/// As tools do that build a table anew beside the old one.
const SWAP: &str = "
    UPDATE pg_class AS c SET relfilenode = o.relfilenode
      FROM pg_class AS o
     WHERE (c.oid, o.oid) IN (('a'::regclass, 'b'::regclass), ('b'::regclass, 'a'::regclass))";

/// Runs a statement and finds the ledger's rows about catalogs exact; gives them.
#[track_caller]
fn catalogs_told(scene: &mut Scene, statement: &str) -> Vec<Entry> {
    let before = Storage::read(&mut scene.observer, Scope::Catalogs);
    let mark = Mark::now(&mut scene.observer);
    scene.session.exec(statement);
    // The session of before has the mapper's old answers until it looks anew.
    let mut session = scene.cluster.session(DATABASE);
    let after = Storage::read(&mut session, Scope::Catalogs);
    let entries = Entry::since(&mut session, mark, Scope::Catalogs);
    let found = findings(&before, &after, &entries, 1);
    assert!(found.is_empty(), "{statement}\n{}", found.join("\n"));
    entries
}

fn names(entries: &[Entry]) -> Vec<String> {
    sorted(entries.iter().map(|entry| format!("{} {}", entry.effect.name(), entry.name)))
}

#[test]
fn mapped_catalogs_are_told_with_their_new_files() {
    let mut scene = Scene::new("");
    let told = catalogs_told(&mut scene, "VACUUM FULL pg_class");
    let expected = [
        "replaced pg_class",
        "replaced pg_class_oid_index",
        "replaced pg_class_relname_nsp_index",
        "replaced pg_class_tblspc_relfilenode_index",
    ];
    assert_eq!(names(&told), expected);
    let told = catalogs_told(&mut scene, "REINDEX TABLE pg_class");
    assert_eq!(names(&told), expected[1..]);
    let told = catalogs_told(&mut scene, "REINDEX INDEX pg_class_oid_index");
    assert_eq!(names(&told), ["replaced pg_class_oid_index"]);
    let told = catalogs_told(&mut scene, "VACUUM FULL pg_attribute, pg_proc, pg_type");
    assert!(names(&told).contains(&"replaced pg_proc".to_owned()), "{told:?}");
    let told = catalogs_told(&mut scene, "BEGIN; REINDEX TABLE pg_type; COMMIT");
    assert!(names(&told).contains(&"replaced pg_type_oid_index".to_owned()), "{told:?}");
}

#[test]
fn other_catalogs_are_told_like_tables() {
    let mut scene = Scene::new("");
    for statement in ["VACUUM FULL pg_depend", "VACUUM FULL pg_statistic", "REINDEX TABLE pg_index"]
    {
        assert!(!catalogs_told(&mut scene, statement).is_empty(), "{statement}");
    }
}

#[test]
fn shared_catalogs_are_told_as_shared() {
    let mut scene = Scene::new("");
    let told = catalogs_told(&mut scene, "VACUUM FULL pg_database");
    assert!(names(&told).contains(&"replaced pg_database".to_owned()), "{told:?}");
    assert!(told.iter().all(|entry| (entry.database, entry.tablespace) == (0, 1664)), "{told:?}");
    let told = catalogs_told(&mut scene, "REINDEX TABLE pg_authid");
    assert!(told.iter().all(|entry| (entry.database, entry.tablespace) == (0, 1664)), "{told:?}");
    // Before 18 it has a TOAST table, too.
    let mut names = names(&told);
    names.retain(|name| name != "replaced pg_toast_1260_index");
    assert_eq!(names, ["replaced pg_authid_oid_index", "replaced pg_authid_rolname_index"]);
}

#[test]
fn all_catalogs_at_once_are_told_exactly() {
    let mut scene = Scene::new(T);
    assert!(catalogs_told(&mut scene, "REINDEX SYSTEM postgres").len() > 100);
    assert!(catalogs_told(&mut scene, "VACUUM FULL").len() > 150);
    assert_eq!(scene.told(&["TRUNCATE t"]), whole("replaced", "t", "TRUNCATE TABLE"));
}

#[test]
fn a_rolled_back_reindex_of_a_mapped_catalog_is_not_told() {
    let mut scene = Scene::new("");
    assert!(catalogs_told(&mut scene, "BEGIN; REINDEX TABLE pg_class; ROLLBACK").is_empty());
}

#[test]
fn files_that_are_swapped_by_hand_are_told_without_a_command() {
    let mut scene = Scene::new(TWO);
    assert_eq!(scene.told(&[SWAP]), ["replaced a by nothing", "replaced b by nothing"]);
}

#[test]
fn a_statement_that_has_failed_is_not_taken_for_the_command_of_a_later_transaction() {
    let mut scene = Scene::new(TWO);
    scene.session.exec("BEGIN; SAVEPOINT s");
    let error = scene.refusal("CREATE TABLE a (id int)");
    assert_eq!(error.code(), &SqlState::DUPLICATE_TABLE);
    scene.session.exec("ROLLBACK TO s; COMMIT");
    assert_eq!(scene.told(&[SWAP]), ["replaced a by nothing", "replaced b by nothing"]);
    // Nor is one within another, or one that the server's own transactions have cut off.
    for statement in ["DO 'BEGIN CREATE TABLE a (id int); END'", "VACUUM FULL a, missing"] {
        let _ = scene.refusal(statement);
        let told = scene.told(&[SWAP]);
        assert_eq!(told, ["replaced a by nothing", "replaced b by nothing"], "{statement}");
    }
}

#[test]
fn a_row_of_the_catalog_that_is_only_touched_is_not_told() {
    let mut scene = Scene::new(T);
    let told = scene.told(&[
        "UPDATE pg_class SET reltuples = 7 WHERE oid = 't'::regclass",
        "BEGIN; UPDATE pg_class SET relpages = 1 WHERE oid = 't'::regclass; ANALYZE t; COMMIT",
    ]);
    assert_eq!(told, [""; 0]);
}

#[test]
fn a_reset_of_the_whole_cache_by_the_transaction_itself_loses_nothing() {
    let mut scene = Scene::new(T);
    scene.session.exec(
        "CREATE TABLE a (id int); CREATE TABLE b (id int);
         CREATE PUBLICATION everything FOR ALL TABLES WITH (publish = 'insert')",
    );
    // The same words, with the setting quoted since 18.
    scene.cluster.allow_log("insufficient to publish logical changes");
    // Changing a publication of all tables resets every session's cache.
    let told = scene.told(&["BEGIN;
         TRUNCATE t;
         ALTER PUBLICATION everything SET (publish = 'delete');
         ALTER TABLE a ALTER id TYPE bigint;
         DROP TABLE b;
         ALTER PUBLICATION everything SET (publish = 'insert');
         COMMIT"]);
    let mut expected = whole("replaced", "t", "TRUNCATE TABLE");
    expected.push("replaced a by ALTER PUBLICATION".to_owned());
    expected.push("dropped b by ALTER PUBLICATION".to_owned());
    assert_eq!(told, sorted(expected));
}

#[test]
fn a_storm_of_other_sessions_invalidations_loses_nothing() {
    let mut scene = Scene::new(T);
    scene.session.exec("CREATE TABLE a (id int); CREATE TABLE b (id int)");
    let watch = scene.watch();
    scene.session.exec("BEGIN; TRUNCATE t; ALTER TABLE a ALTER id TYPE bigint");
    // More messages than the shared queue holds: sessions that are behind forget everything.
    let mut other = scene.cluster.session(DATABASE);
    for _ in 0..3 {
        other.exec(
            "DO $$ BEGIN
                 FOR i IN 1..1500 LOOP
                     EXECUTE 'CREATE TABLE noise (id int)';
                     EXECUTE 'DROP TABLE noise';
                 END LOOP;
             END $$",
        );
    }
    scene.session.exec("DROP TABLE b; COMMIT");
    let mut expected = whole("replaced", "t", "TRUNCATE TABLE");
    expected.push("replaced a by DROP TABLE".to_owned());
    expected.push("dropped b by DROP TABLE".to_owned());
    assert_eq!(watch.told(&mut scene.observer), sorted(expected));
}

#[test]
fn what_another_session_has_changed_is_told_by_that_one_alone() {
    let mut scene = Scene::new("CREATE TABLE a (id int); CREATE TABLE b (id int)");
    let other = scene.cluster.session(DATABASE);
    let watch = scene.watch();
    scene.session.exec("BEGIN; TRUNCATE a; SELECT count(*) FROM b");
    scene.session.exec("SAVEPOINT s; SELECT 1 FROM b; ROLLBACK TO s");
    let waiting = other.start("TRUNCATE b");
    stillpoint_tests::wait_until(
        &mut scene.observer,
        &crate::waits_behind(waiting.pid(), scene.session.pid()),
    );
    scene.session.exec("COMMIT");
    drop(waiting.finish());
    let told = watch.told(&mut scene.observer);
    assert_eq!(told, sorted(["replaced a by TRUNCATE TABLE", "replaced b by TRUNCATE TABLE"]));
    let entries = watch.entries(&mut scene.observer);
    assert!(entries.iter().all(|entry| entry.effect == Effect::Replaced), "{entries:?}");
}

#[test]
fn a_transaction_after_an_aborted_one_records_only_its_own() {
    let mut scene = Scene::new("CREATE TABLE a (id int); CREATE TABLE b (id int)");
    scene.session.exec("BEGIN; TRUNCATE a; DROP TABLE b; ROLLBACK");
    scene.observer.exec("TRUNCATE a");
    let told = scene.told(&["BEGIN; INSERT INTO b VALUES (1); TRUNCATE b; COMMIT"]);
    assert_eq!(told, ["replaced b by TRUNCATE TABLE"]);
}
