//! Dumps by roles that are no superusers.

use stillpoint_tests::{Cluster, Stillpoint};

use crate::compare::assert_dumped_as_by_pg_dump;

fn start() -> (Cluster, tempfile::TempDir) {
    let cluster = Cluster::preloaded();
    cluster.create_database("source");
    cluster.session("source").exec(
        "CREATE ROLE limited LOGIN; \
         CREATE TABLE open AS SELECT generate_series(1, 10) AS id; \
         CREATE TABLE secrets (id int, owner name); \
         INSERT INTO secrets VALUES (1, 'limited'), (2, 'other'); \
         CREATE SEQUENCE numbers; \
         GRANT SELECT ON ALL TABLES IN SCHEMA public TO limited; \
         GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO limited",
    );
    (cluster, tempfile::tempdir().expect("a temporary directory"))
}

#[test]
fn a_role_that_may_read_everything_dumps_everything() {
    let (cluster, _directory) = start();
    let limited: &[&[&str]] = &[&["-j2", "-U", "limited"]];
    assert_dumped_as_by_pg_dump(&cluster, "source", limited);
    // Without USAGE on its schema the extension does not exist for the role, with it, it does.
    cluster.create_extension("source");
    assert_dumped_as_by_pg_dump(&cluster, "source", limited);
    cluster.session("source").exec("GRANT USAGE ON SCHEMA stillpoint TO limited");
    assert_dumped_as_by_pg_dump(&cluster, "source", limited);
}

#[test]
fn a_role_may_be_kept_from_reading_the_control_file() {
    let (cluster, directory) = start();
    cluster
        .session("source")
        .exec("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_control_system() FROM PUBLIC");
    let archive = directory.path().join("archive");
    let finished = Stillpoint::dump(&cluster, "source", &archive).args(["-U", "limited"]).run();
    finished.assert_exit(0);
    assert!(finished.report()["system_identifier"].is_null(), "{}", finished.scene());
}

#[test]
fn a_function_that_somebody_has_added_to_the_extensions_schema_is_not_called() {
    let (cluster, _directory) = start();
    cluster.create_extension("source");
    cluster.session("source").exec("GRANT USAGE, CREATE ON SCHEMA stillpoint TO limited");
    for parameter in ["text", "text[]", "anyarray"] {
        // A warning in the server's log would fail the test.
        cluster.session_as("source", "limited").exec(&format!(
            "CREATE FUNCTION stillpoint.changed_relations(r {parameter}, OUT relation oid, \
                 OUT reasons text[], OUT rows_kept bool, OUT ancestors oid[]) RETURNS SETOF record \
                 LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'the trap was run'; END $$",
        ));
    }
    assert_dumped_as_by_pg_dump(&cluster, "source", &[&["-j2"]]);
}

#[test]
fn rows_that_a_policy_would_hide_are_an_error_that_names_the_table() {
    let (cluster, directory) = start();
    cluster.allow_log("query would be affected by row-level security policy");
    // What the other worker reads is of no use then.
    cluster.allow_cancelled_statements();
    cluster.session("source").exec(
        "ALTER TABLE secrets ENABLE ROW LEVEL SECURITY; \
         CREATE POLICY mine ON secrets USING (owner = current_user)",
    );
    let archive = directory.path().join("archive");
    for jobs in ["-j1", "-j2"] {
        let finished = Stillpoint::dump(&cluster, "source", &archive)
            .args([jobs, "-U", "limited", "--attempts", "2"])
            .run();
        finished.assert_exit(1);
        assert_eq!(
            finished.stderr,
            "stillpoint: error: could not export table \"public\".\"secrets\": could not start \
             COPY: query would be affected by row-level security policy for table \"secrets\"\n"
        );
        assert_eq!(finished.report()["outcome"], "failed");
        assert!(!archive.exists() && !archive.with_extension("partial").exists());
    }
    // The policy does not concern who owns the table.
    Stillpoint::dump(&cluster, "source", &archive).run().assert_exit(0);
}

#[test]
fn a_table_that_may_not_be_read_is_an_error_that_names_it() {
    let (cluster, directory) = start();
    cluster.allow_log("permission denied for table secrets");
    cluster.session("source").exec("REVOKE SELECT ON secrets FROM limited");
    let archive = directory.path().join("archive");
    let finished = Stillpoint::dump(&cluster, "source", &archive).args(["-U", "limited"]).run();
    finished.assert_exit(1).assert_stderr("permission denied for table secrets");
    assert_eq!(finished.report()["attempts"].as_array().map(Vec::len), Some(0));
    assert!(!archive.exists() && !archive.with_extension("partial").exists());
    let finished = Stillpoint::dump(&cluster, "source", &archive)
        .args(["-U", "limited", "-T", "secrets"])
        .run();
    finished.assert_exit(0);
}
