//! Who may read and run backups, and that he can forge nothing by it.

use postgres::error::SqlState;

use crate::{DATABASE, Scene, literal, refusal};

/// As docs/sql.md has it.
const GRANTS: &str = "
    CREATE ROLE backup LOGIN;
    GRANT USAGE ON SCHEMA stillpoint TO backup;
    GRANT SELECT ON stillpoint.consumers, stillpoint.possible_vacuum_list TO backup;
    GRANT EXECUTE ON FUNCTION
        stillpoint.bookmark(), stillpoint.invalidated_since(text),
        stillpoint.invalidated_between(text, text), stillpoint.begin_backup(text),
        stillpoint.end_backup(text, text) TO backup";

#[test]
fn a_role_with_the_documented_grants_runs_backups() {
    let mut scene = Scene::new();
    scene.session.exec(GRANTS);
    scene.session.exec("SELECT stillpoint.register_consumer('tool')");
    let mut backup = scene.cluster.session_as(DATABASE, "backup");
    let bookmark = backup.text("SELECT bookmark FROM stillpoint.begin_backup('tool')");
    scene.session.exec("TRUNCATE a");
    let names = format!(
        "SELECT DISTINCT relation_name FROM stillpoint.invalidated_since({})
          WHERE relation_name = 'a'",
        literal(&bookmark)
    );
    assert_eq!(backup.text(&names), "a");
    backup.exec(&format!("SELECT stillpoint.end_backup('tool', {})", literal(&bookmark)));
    assert_eq!(backup.text("SELECT name FROM stillpoint.consumers"), "tool");
    assert!(backup.number("SELECT count(*) FROM stillpoint.possible_vacuum_list") >= 1);
    assert!(backup.yes("SELECT recording FROM stillpoint.status()"));
}

#[test]
fn that_role_can_write_and_read_nothing_else() {
    let mut scene = Scene::new();
    scene.session.exec(GRANTS);
    let mut backup = scene.cluster.session_as(DATABASE, "backup");
    for sql in [
        "SELECT * FROM stillpoint.invalidation",
        "SELECT * FROM stillpoint.bookmark",
        "INSERT INTO stillpoint.bookmark SELECT '', '', 0, now(), '3', '', '', ''",
        "UPDATE stillpoint.consumer SET lost = false",
        "DELETE FROM stillpoint.invalidation",
        "TRUNCATE stillpoint.consumer",
        "SELECT stillpoint.prune()",
        "SELECT stillpoint.register_consumer('mine')",
        "SELECT stillpoint.drop_consumer('tool')",
        "CREATE FUNCTION stillpoint.bookmark(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ] {
        let error = refusal(&scene.cluster, &mut backup, sql);
        assert_eq!(error.code(), &SqlState::INSUFFICIENT_PRIVILEGE, "{sql}: {error}");
    }
}

#[test]
fn who_may_use_the_schema_may_not_yet_run_backups() {
    let mut scene = Scene::new();
    scene.session.exec("CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA stillpoint TO reader");
    let mut reader = scene.cluster.session_as(DATABASE, "reader");
    for call in [
        "bookmark()",
        "invalidated_since('{}')",
        "invalidated_between('{}', '{}')",
        "begin_backup('tool')",
        "end_backup('tool', '{}')",
    ] {
        let sql = format!("SELECT * FROM stillpoint.{call}");
        let error = refusal(&scene.cluster, &mut reader, &sql);
        assert_eq!(error.code(), &SqlState::INSUFFICIENT_PRIVILEGE, "{sql}: {error}");
    }
}

#[test]
fn a_malicious_search_path_changes_no_answer() {
    let mut scene = Scene::new();
    scene.session.exec(GRANTS);
    scene.session.exec(
        "CREATE SCHEMA trap;
         CREATE FUNCTION trap.lies(name, name) RETURNS bool LANGUAGE sql AS 'SELECT false';
         CREATE OPERATOR trap.= (LEFTARG = name, RIGHTARG = name, FUNCTION = trap.lies);
         CREATE TABLE trap.pg_prepared_xacts (gid text);
         CREATE TABLE trap.bookmark (id text);
         GRANT USAGE ON SCHEMA trap TO backup;
         SELECT stillpoint.register_consumer('tool')",
    );
    let mut backup = scene.cluster.session_as(DATABASE, "backup");
    backup.exec("SET search_path = trap, pg_catalog");
    let bookmark = backup.text("SELECT bookmark FROM stillpoint.begin_backup('tool')");
    scene.session.exec("TRUNCATE a");
    assert_eq!(scene.void_since(&bookmark), ["a"]);
    backup.exec(&format!("SELECT stillpoint.end_backup('tool', {})", literal(&bookmark)));
}
