//! `prune()` takes old rows out of the ledger, and no others.

use postgres::error::SqlState;

use crate::held::hold;
use crate::{DATABASE, Scene, T, refusal};

const PRUNE: &str = "SELECT stillpoint.prune()";

/// Makes what is in the ledger as old as that.
#[track_caller]
fn age(scene: &mut Scene, by: &str) {
    scene.observer.exec(&format!(
        "UPDATE stillpoint.invalidation SET recorded_at = recorded_at - interval '{by}'"
    ));
}

/// The names of the relations in the ledger.
#[track_caller]
fn rows(scene: &mut Scene) -> Vec<String> {
    scene.observer.texts("SELECT relation_name FROM stillpoint.invalidation ORDER BY 1")
}

#[test]
fn rows_go_when_they_are_older_than_they_are_to_be_kept() {
    let mut scene = Scene::new("CREATE TABLE a (id int); CREATE TABLE b (id int)");
    assert_eq!(scene.session.number(PRUNE), 0);
    scene.session.exec("TRUNCATE a");
    age(&mut scene, "29 days");
    scene.session.exec("TRUNCATE b");
    assert_eq!(scene.session.number(PRUNE), 0);
    scene.session.exec("SET stillpoint.ledger_retention = '28d'");
    assert_eq!(scene.session.number(PRUNE), 1);
    assert_eq!(rows(&mut scene), ["b"]);
    age(&mut scene, "59 seconds");
    scene.session.exec("SET stillpoint.ledger_retention = '10min'");
    assert_eq!(scene.session.number(PRUNE), 0);
    age(&mut scene, "10 minutes");
    assert_eq!(scene.session.number(PRUNE), 1);
    assert_eq!(rows(&mut scene), [""; 0]);
    let recorded = scene.told(&["TRUNCATE a"]);
    assert_eq!(recorded, ["replaced a by TRUNCATE TABLE"]);
}

#[test]
fn rows_of_work_that_goes_on_stay_however_old_they_are() {
    let mut scene = Scene::new("CREATE TABLE a (id int); CREATE TABLE b (id int)");
    let held = hold(&mut scene, "VACUUM a", "a");
    held.end_by(&mut scene, "pg_cancel_backend", "canceling statement due to user request");
    age(&mut scene, "1 year");
    assert_eq!(scene.session.number(PRUNE), 0);
    assert_eq!(scene.open(), ["a"]);
    scene.session.exec("VACUUM b");
    assert_eq!(scene.session.number(PRUNE), 1);
    assert_eq!(rows(&mut scene), ["b"]);
}

#[test]
fn pruning_goes_on_beside_work_and_leaves_it_its_rows() {
    let mut scene = Scene::new("CREATE TABLE a (id int); CREATE TABLE b (id int)");
    scene.session.exec("TRUNCATE b");
    age(&mut scene, "1 year");
    let held = hold(&mut scene, "VACUUM FULL a, b", "b");
    assert_eq!(scene.session.number(PRUNE), 1);
    assert_eq!(scene.open(), ["b"]);
    drop(held.let_go());
    assert_eq!(rows(&mut scene), ["a", "b"]);
    assert_eq!(scene.open(), [""; 0]);
}

#[test]
fn pruning_is_a_statement_of_its_own() {
    let mut scene = Scene::new(T);
    scene.session.exec("TRUNCATE t");
    age(&mut scene, "1 year");
    let error = scene.refusal("BEGIN; SELECT stillpoint.prune()");
    assert_eq!(error.code(), &SqlState::ACTIVE_SQL_TRANSACTION, "{error}");
    scene.session.exec("ROLLBACK");
    assert_eq!(scene.session.number(PRUNE), 4);
    assert_eq!(scene.session.number(PRUNE), 0);
}

#[test]
fn rows_that_came_with_the_template_go_however_young_they_are() {
    let mut scene = Scene::new("");
    scene.cluster.create_database("original");
    scene.cluster.create_extension("original");
    let mut original = scene.cluster.session("original");
    original.exec("CREATE TABLE a (id int)");
    original.exec("TRUNCATE a");
    drop(original);
    stillpoint_tests::wait_until(
        &mut scene.observer,
        "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = 'original')",
    );
    scene.session.exec("CREATE DATABASE copy TEMPLATE original");
    let mut copy = scene.cluster.session("copy");
    copy.exec("TRUNCATE a");
    // One that is shared by all databases is everybody's.
    copy.exec("REINDEX INDEX pg_database_oid_index");
    let rows = "SELECT count(*) FROM stillpoint.invalidation";
    let foreign = copy.number(&format!(
        "{rows} WHERE database NOT IN
                (0, (SELECT oid FROM pg_database WHERE datname = current_database()))"
    ));
    assert!(foreign > 0);
    assert_eq!(copy.number(PRUNE), foreign);
    assert_eq!(copy.number(rows), 2);
    let mut original = scene.cluster.session("original");
    assert_eq!(original.number(PRUNE), 0);
}

#[test]
fn a_ledger_without_its_index_is_pruned_too() {
    let mut scene = Scene::new(T);
    scene.session.exec("DROP INDEX stillpoint.invalidation_finished_xid_idx");
    scene.session.exec("TRUNCATE t");
    age(&mut scene, "1 year");
    // The index, too, was dropped and recorded.
    assert_eq!(scene.session.number(PRUNE), 5);
    assert_eq!(rows(&mut scene), [""; 0]);
}

#[test]
fn only_superusers_prune_until_they_grant_it() {
    let mut scene = Scene::new(T);
    scene.session.exec(
        "CREATE ROLE owner LOGIN; ALTER DATABASE postgres OWNER TO owner;
         ALTER TABLE t OWNER TO owner; GRANT USAGE ON SCHEMA stillpoint TO owner;
         TRUNCATE t",
    );
    age(&mut scene, "1 year");
    let mut owner = scene.cluster.session_as(DATABASE, "owner");
    let error = refusal(&scene.cluster, &mut owner, PRUNE);
    assert_eq!(error.code(), &SqlState::INSUFFICIENT_PRIVILEGE, "{error}");
    scene.session.exec("GRANT EXECUTE ON FUNCTION stillpoint.prune() TO owner");
    assert_eq!(owner.number(PRUNE), 4);
    let error = refusal(&scene.cluster, &mut owner, "SELECT * FROM stillpoint.invalidation");
    assert_eq!(error.code(), &SqlState::INSUFFICIENT_PRIVILEGE, "{error}");
}

#[test]
fn a_transaction_that_may_only_read_does_not_prune() {
    let mut scene = Scene::new(T);
    scene.session.exec("TRUNCATE t");
    age(&mut scene, "1 year");
    let error = scene.refusal(&format!("BEGIN READ ONLY; {PRUNE}"));
    assert_eq!(error.code(), &SqlState::READ_ONLY_SQL_TRANSACTION, "{error}");
    scene.session.exec("ROLLBACK");
    assert_eq!(rows(&mut scene).len(), 4);
    let standby = scene.cluster.start_standby();
    let error = refusal(&standby, &mut standby.session(DATABASE), PRUNE);
    assert_eq!(error.code(), &SqlState::READ_ONLY_SQL_TRANSACTION, "{error}");
}
