//! Nobody but a superuser forges, reads or suppresses a row.

use postgres::error::SqlState;
use stillpoint_tests::Session;

use crate::held::hold_in;
use crate::{DATABASE, Scene, T, refusal, whole};

/// A role that owns the table, the database, and all it can have without being a superuser.
#[track_caller]
fn owner(scene: &mut Scene) -> Session {
    scene.session.exec(
        "CREATE ROLE owner LOGIN CREATEDB CREATEROLE;
         GRANT pg_read_all_settings TO owner;
         GRANT ALL ON DATABASE postgres TO owner; GRANT ALL ON SCHEMA public TO owner;
         GRANT USAGE ON SCHEMA stillpoint TO owner;
         ALTER TABLE t OWNER TO owner; ALTER DATABASE postgres OWNER TO owner",
    );
    scene.cluster.session_as(DATABASE, "owner")
}

#[test]
fn a_table_owner_can_neither_read_nor_forge_nor_delete_rows() {
    let mut scene = Scene::new(T);
    let mut owner = owner(&mut scene);
    owner.exec("TRUNCATE t");
    for statement in [
        "SELECT * FROM stillpoint.invalidation",
        "INSERT INTO stillpoint.invalidation DEFAULT VALUES",
        "UPDATE stillpoint.invalidation SET effect = 'pages'",
        "DELETE FROM stillpoint.invalidation",
        "TRUNCATE stillpoint.invalidation",
        "COPY stillpoint.invalidation TO STDOUT",
        "ALTER TABLE stillpoint.invalidation ADD COLUMN x int",
        "DROP TABLE stillpoint.invalidation",
        "CREATE TRIGGER x BEFORE INSERT ON stillpoint.invalidation \
             EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE RULE x AS ON INSERT TO stillpoint.invalidation DO INSTEAD NOTHING",
        "CREATE INDEX ON stillpoint.invalidation (xid)",
        "CREATE TABLE stillpoint.other ()",
        "CREATE FUNCTION stillpoint.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "REINDEX TABLE stillpoint.invalidation",
        "DROP EXTENSION stillpoint",
        "ALTER EXTENSION stillpoint UPDATE",
        "SELECT * FROM stillpoint.recording",
        "DELETE FROM stillpoint.recording",
    ] {
        let error = refusal(&scene.cluster, &mut owner, statement);
        let code = error.code();
        assert!(
            [&SqlState::INSUFFICIENT_PRIVILEGE, &SqlState::DUPLICATE_OBJECT].contains(&code),
            "{statement}: {error}"
        );
    }
    let rows = "SELECT count(*) FROM stillpoint.invalidation WHERE relation_name = 't'";
    assert_eq!(scene.observer.number(rows), 1);
}

#[test]
fn a_table_owner_cannot_switch_the_recording_off() {
    let mut scene = Scene::new(T);
    let mut owner = owner(&mut scene);
    scene.cluster.allow_log("SET LOCAL can only be used in transaction blocks");
    for (setting, value) in [
        ("enabled", "off"),
        ("on_record_failure", "warning"),
        ("record_vacuum", "rewrites"),
        ("ledger_retention", "'1min'"),
    ] {
        for statement in [
            format!("SET stillpoint.{setting} = {value}"),
            format!("SET LOCAL stillpoint.{setting} = {value}"),
            format!("SELECT set_config('stillpoint.{setting}', $v${value}$v$, false)"),
            format!("ALTER ROLE owner SET stillpoint.{setting} = {value}"),
            format!("ALTER DATABASE postgres SET stillpoint.{setting} = {value}"),
            format!(
                "CREATE FUNCTION f() RETURNS void LANGUAGE sql SET stillpoint.{setting} = {value} \
                 AS 'TRUNCATE t'; SELECT f()"
            ),
        ] {
            let error = refusal(&scene.cluster, &mut owner, &statement);
            assert_eq!(error.code(), &SqlState::INSUFFICIENT_PRIVILEGE, "{statement}");
        }
    }
    let watch = scene.watch();
    owner.exec("TRUNCATE t");
    assert_eq!(watch.told(&mut scene.observer), whole("replaced", "t", "TRUNCATE TABLE"));
}

#[test]
fn a_settings_prefix_is_reserved() {
    let mut scene = Scene::new("");
    let error = scene.refusal("SET stillpoint.enable = off");
    assert!(error.message().contains("stillpoint.enable"), "{error}");
}

#[test]
fn a_search_path_leads_nowhere() {
    let mut scene = Scene::new(T);
    let mut owner = owner(&mut scene);
    owner.exec(
        "CREATE SCHEMA mine;
         CREATE TABLE mine.invalidation (LIKE pg_catalog.pg_class);
         CREATE TABLE mine.pg_class (LIKE pg_catalog.pg_class);
         CREATE TABLE mine.pg_extension (LIKE pg_catalog.pg_extension);
         CREATE FUNCTION mine.no(oid, oid) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT false';
         CREATE OPERATOR mine.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = mine.no);
         CREATE TEMPORARY TABLE invalidation (xid int);
         SET search_path = mine, pg_temp, public, pg_catalog",
    );
    let watch = scene.watch();
    owner.exec("TRUNCATE public.t");
    assert_eq!(watch.told(&mut scene.observer), whole("replaced", "t", "TRUNCATE TABLE"));
    let watch = scene.watch();
    owner.exec("VACUUM public.t");
    assert_eq!(watch.told(&mut scene.observer), whole("pages", "t", "VACUUM"));
}

/// A schema of the extension's name, made by somebody who waits for a superuser to write there.
const TRAP: &str = "
    CREATE SCHEMA stillpoint;
    CREATE TABLE stillpoint.invalidation (
        xid xid8 NOT NULL, finished_xid xid8, lsn pg_lsn NOT NULL,
        recorded_at timestamptz NOT NULL, database oid NOT NULL, tablespace oid NOT NULL,
        filenode oid NOT NULL, replaced_by oid, relation oid NOT NULL, relation_name text NOT NULL,
        relation_kind \"char\" NOT NULL, command text, effect text NOT NULL,
        rows_kept bool NOT NULL
    );
    CREATE FUNCTION stillpoint.trap(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''trapped''; END';
    CREATE INDEX ON stillpoint.invalidation (finished_xid);
    CREATE INDEX ON stillpoint.invalidation (stillpoint.trap(relation_name));
    CREATE FUNCTION stillpoint.spring() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''sprung''; END';
    CREATE TRIGGER spring BEFORE INSERT OR DELETE ON stillpoint.invalidation
        FOR EACH ROW EXECUTE FUNCTION stillpoint.spring();
    CREATE TABLE stillpoint.recording (since timestamptz NOT NULL);
    CREATE TABLE t (id int PRIMARY KEY)";

#[test]
fn a_schema_of_that_name_without_the_extension_is_left_alone() {
    let mut scene = Scene::new(T);
    let mut owner = owner(&mut scene);
    owner.exec("CREATE DATABASE trap");
    scene.cluster.session_as("trap", "owner").exec("CREATE SCHEMA owned; SET search_path = owned");
    scene.cluster.session("trap").exec("GRANT ALL ON SCHEMA public TO owner");
    scene.cluster.session_as("trap", "owner").exec(TRAP);
    let mut superuser = scene.cluster.session("trap");
    for statement in [
        "TRUNCATE t",
        "VACUUM t",
        "VACUUM FULL t",
        "VACUUM",
        "REINDEX TABLE CONCURRENTLY t",
        "ALTER TABLE t ALTER id TYPE bigint",
        "DROP TABLE t",
    ] {
        superuser.exec(statement);
    }
    assert_eq!(superuser.number("SELECT count(*) FROM stillpoint.invalidation"), 0);
    // And an extension of another name that is in that schema does not make it ours.
    superuser.exec("CREATE EXTENSION pg_stat_statements SCHEMA stillpoint");
    superuser.exec("CREATE TABLE t (id int); TRUNCATE t; DROP TABLE t");
}

#[test]
fn a_schema_that_is_not_a_superusers_does_not_get_the_ledger() {
    let mut scene = Scene::new(T);
    let _owner = owner(&mut scene);
    scene.cluster.create_database("mine");
    let mut superuser = scene.cluster.session("mine");
    superuser.exec("CREATE SCHEMA stillpoint AUTHORIZATION owner");
    // Who owns a schema may drop what is in it, whoever has made it.
    let error = refusal(&scene.cluster, &mut superuser, "CREATE EXTENSION stillpoint");
    assert_eq!(error.code(), &SqlState::INSUFFICIENT_PRIVILEGE, "{error}");
    superuser.exec("CREATE EXTENSION stillpoint VERSION '0.1.0'");
    let error = refusal(&scene.cluster, &mut superuser, "ALTER EXTENSION stillpoint UPDATE");
    assert_eq!(error.code(), &SqlState::INSUFFICIENT_PRIVILEGE, "{error}");
    superuser.exec("ALTER SCHEMA stillpoint OWNER TO postgres");
    superuser.exec("ALTER EXTENSION stillpoint UPDATE");
}

#[test]
fn a_superuser_is_recorded_like_anybody_and_triggers_on_the_ledger_are_not_asked() {
    let mut scene = Scene::new(T);
    scene.session.exec(
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER swallow BEFORE INSERT OR DELETE ON stillpoint.invalidation
             FOR EACH ROW EXECUTE FUNCTION swallow();
         ALTER TABLE stillpoint.invalidation ENABLE ROW LEVEL SECURITY;
         ALTER TABLE stillpoint.invalidation FORCE ROW LEVEL SECURITY",
    );
    assert_eq!(scene.told(&["TRUNCATE t"]), whole("replaced", "t", "TRUNCATE TABLE"));
}

#[test]
fn the_owner_of_a_database_does_not_rebuild_others_tables_and_nothing_is_told() {
    let mut scene = Scene::new(T);
    let mut owner = owner(&mut scene);
    scene
        .session
        .exec("ALTER TABLE t OWNER TO postgres; CREATE SCHEMA s; CREATE TABLE s.k (id int)");
    let watch = scene.watch();
    for statement in [
        "REINDEX INDEX CONCURRENTLY t_pkey",
        "REINDEX TABLE CONCURRENTLY t",
        "REINDEX INDEX t_pkey",
        "REINDEX SCHEMA s",
        "REINDEX SCHEMA CONCURRENTLY s",
    ] {
        let error = refusal(&scene.cluster, &mut owner, statement);
        assert_eq!(error.code(), &SqlState::INSUFFICIENT_PRIVILEGE, "{statement}: {error}");
        assert!(watch.entries(&mut scene.observer).is_empty(), "{statement}");
    }
}

#[test]
fn what_the_owner_of_a_schema_rebuilds_there_is_told_before_although_the_tables_are_others() {
    let mut scene = Scene::new(
        "CREATE ROLE keeper LOGIN; CREATE SCHEMA kept AUTHORIZATION keeper;
         CREATE TABLE kept.k (id int PRIMARY KEY)",
    );
    for statement in ["REINDEX SCHEMA kept", "REINDEX SCHEMA CONCURRENTLY kept"] {
        let keeper = scene.cluster.session_as(DATABASE, "keeper");
        let held = hold_in(&mut scene, keeper, statement, "kept.k");
        assert_eq!(scene.open(), ["k_pkey"], "{statement}");
        drop(held.let_go());
        assert_eq!(scene.open(), [""; 0], "{statement}");
    }
}

#[test]
fn what_the_owner_of_a_database_rebuilds_there_is_told_before_although_the_tables_are_others() {
    let mut scene = Scene::new(T);
    drop(owner(&mut scene));
    scene.session.exec("ALTER TABLE t OWNER TO postgres");
    let owner = scene.cluster.session_as(DATABASE, "owner");
    let held = hold_in(&mut scene, owner, "REINDEX DATABASE postgres", "t");
    assert!(scene.open().contains(&"t_pkey".to_owned()));
    drop(held.let_go());
    assert_eq!(scene.open(), [""; 0]);
}
