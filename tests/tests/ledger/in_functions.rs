//! Statements that other statements run: functions, DO, procedures, triggers, event triggers.

use crate::{Scene, T, sorted, whole};

const TABLES: &str = "CREATE TABLE a (id int); CREATE TABLE b (id int); CREATE TABLE c (id int)";

#[test]
fn a_function_that_truncates_is_recorded() {
    let mut scene = Scene::new(T);
    scene.session.exec(
        "CREATE FUNCTION empty() RETURNS void LANGUAGE plpgsql AS 'BEGIN TRUNCATE t; END';
         CREATE FUNCTION empty_by_sql() RETURNS void LANGUAGE sql AS 'TRUNCATE t'",
    );
    for call in ["SELECT empty()", "SELECT empty_by_sql()", "DO 'BEGIN PERFORM empty(); END'"] {
        assert_eq!(scene.told(&[call]), whole("replaced", "t", "TRUNCATE TABLE"), "{call}");
    }
}

#[test]
fn what_a_handler_undoes_is_not_told_and_what_it_does_is() {
    let mut scene = Scene::new(TABLES);
    let told = scene.told(&["DO $$ BEGIN
             TRUNCATE a;
             BEGIN
                 TRUNCATE b;
                 RAISE division_by_zero;
             EXCEPTION WHEN division_by_zero THEN
                 TRUNCATE c;
             END;
         END $$"]);
    let expected = ["replaced a by TRUNCATE TABLE", "replaced c by TRUNCATE TABLE"];
    assert_eq!(told, sorted(expected));
}

#[test]
fn a_procedure_that_commits_is_recorded_by_transaction() {
    let mut scene = Scene::new(TABLES);
    scene.session.exec(
        "CREATE PROCEDURE work() LANGUAGE plpgsql AS $$
         BEGIN
             TRUNCATE a; COMMIT;
             TRUNCATE b; ROLLBACK;
             TRUNCATE c; COMMIT;
             ALTER TABLE b ALTER id TYPE bigint;
         END $$",
    );
    let watch = scene.watch();
    scene.session.exec("CALL work()");
    let told = watch.told(&mut scene.observer);
    let expected = [
        "replaced a by TRUNCATE TABLE",
        "replaced b by ALTER TABLE",
        "replaced c by TRUNCATE TABLE",
    ];
    assert_eq!(told, expected);
    let mut xids: Vec<_> = watch.entries(&mut scene.observer).iter().map(|e| e.xid).collect();
    xids.dedup();
    assert_eq!(xids.len(), 3, "{xids:?}");
}

#[test]
fn a_statement_that_an_event_trigger_runs_is_recorded() {
    let mut scene = Scene::new(TABLES);
    scene.session.exec(
        "CREATE FUNCTION also() RETURNS event_trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF tg_tag = 'CREATE TABLE' THEN TRUNCATE a; END IF;
         END $$;
         CREATE EVENT TRIGGER at_the_start ON ddl_command_start EXECUTE FUNCTION also();
         CREATE EVENT TRIGGER at_the_end ON ddl_command_end EXECUTE FUNCTION also();
         CREATE FUNCTION after_a_drop() RETURNS event_trigger LANGUAGE plpgsql AS $$
         BEGIN
             TRUNCATE c;
         END $$;
         CREATE EVENT TRIGGER dropped ON sql_drop EXECUTE FUNCTION after_a_drop()",
    );
    assert_eq!(scene.told(&["CREATE TABLE d ()"]), ["replaced a by TRUNCATE TABLE"]);
    let told = scene.told(&["DROP TABLE b"]);
    assert_eq!(told, sorted(["dropped b by TRUNCATE TABLE", "replaced c by TRUNCATE TABLE"]));
}

#[test]
fn an_event_trigger_for_rewrites_may_truncate_another_table() {
    let mut scene = Scene::new(TABLES);
    scene.session.exec(
        "CREATE FUNCTION also() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN TRUNCATE b; END';
         CREATE EVENT TRIGGER rewritten ON table_rewrite EXECUTE FUNCTION also()",
    );
    let told = scene.told(&["ALTER TABLE a ALTER id TYPE bigint"]);
    let expected = ["replaced a by TRUNCATE TABLE", "replaced b by TRUNCATE TABLE"];
    assert_eq!(told, sorted(expected));
}

#[test]
fn a_trigger_that_fires_at_the_commit_is_recorded() {
    let mut scene = Scene::new(TABLES);
    scene.session.exec(
        "CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN TRUNCATE b; RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON a DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION late()",
    );
    let told = scene.told(&["BEGIN; INSERT INTO a VALUES (1); INSERT INTO c VALUES (1); COMMIT"]);
    assert_eq!(told, ["replaced b by TRUNCATE TABLE"]);
}

#[test]
fn a_prepared_statement_and_the_extended_protocol_are_recorded() {
    let mut scene = Scene::new(T);
    let watch = scene.watch();
    scene.session.client().execute("TRUNCATE t", &[]).expect("it is truncated");
    assert_eq!(watch.told(&mut scene.observer), whole("replaced", "t", "TRUNCATE TABLE"));
    let watch = scene.watch();
    scene.session.client().execute("VACUUM t", &[]).expect("it is vacuumed");
    assert_eq!(watch.told(&mut scene.observer), whole("pages", "t", "VACUUM"));
}
