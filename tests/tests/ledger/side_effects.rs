//! What recording must not do to the session, and to others: to the durability of commits, to
//! serializable transactions, to locks, to memory.

use std::fs;

use stillpoint_tests::{ClusterOptions, Session, pgbench};

use crate::{DATABASE, Scene, T};

#[test]
fn what_follows_a_vacuum_in_a_pipeline_is_as_durable_as_the_session_wants_it() {
    let options = ClusterOptions::default().setting("synchronous_commit = on");
    let mut scene = Scene::with(options, T);
    if scene.cluster.major_version() < 14 {
        // Its pgbench cannot send a pipeline.
        return;
    }
    scene.session.exec("CREATE TABLE seen (setting text)");
    let script = scene.cluster.host().join("pipeline");
    for statement in ["VACUUM t", "VACUUM FULL t", "REINDEX TABLE CONCURRENTLY t"] {
        let text = format!(
            "\\startpipeline\n{statement};\n\
             INSERT INTO seen SELECT current_setting('synchronous_commit');\n\\endpipeline\n"
        );
        fs::write(&script, text).expect("the script can be written");
        let finished = pgbench(&scene.cluster, DATABASE)
            .args(["--no-vacuum", "--transactions=1", "--protocol=extended", "--file"])
            .arg(&script)
            .run();
        finished.assert_exit(0);
        let seen = scene.observer.texts("SELECT setting FROM seen");
        assert_eq!(seen, ["on"], "{statement}");
        // The end of the work is recorded in a transaction that has nothing else in it.
        let joined = "SELECT EXISTS (SELECT FROM seen, stillpoint.invalidation
                                      WHERE seen.xmin = xid(finished_xid))";
        assert!(!scene.observer.yes(joined), "{statement}");
        assert_eq!(scene.open(), [""; 0], "{statement}");
        scene.session.exec("DELETE FROM seen");
    }
}

#[test]
fn serializable_transactions_do_not_fail_because_of_each_others_records() {
    let mut scene = Scene::new(
        "CREATE TABLE a (id int); CREATE TABLE b (id int);
         CREATE TABLE x (id int); INSERT INTO x VALUES (1)",
    );
    const BEGIN: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE";
    for _ in 0..2 {
        let [mut first, mut second, mut third] =
            std::array::from_fn(|_| scene.cluster.session(DATABASE));
        second.exec(BEGIN);
        let _ = second.rows("SELECT * FROM x");
        third.exec(&format!("{BEGIN}; UPDATE x SET id = id + 1; COMMIT"));
        first.exec(&format!("{BEGIN}; TRUNCATE a; COMMIT"));
        let predicates = "SELECT count(*) FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
                           WHERE l.mode = 'SIReadLock' AND c.relnamespace = 'stillpoint'::regnamespace";
        assert_eq!(scene.observer.number(predicates), 0);
        // It has not seen what the third wrote. Had the first seen what it writes now, there would
        // be no order of the three.
        second.exec("TRUNCATE b; COMMIT");
        // The same without the help of an index.
        scene.session.exec("DROP INDEX IF EXISTS stillpoint.invalidation_finished_xid_idx");
    }
}

/// The catalogs that a session holds locks on after a statement in a transaction.
#[track_caller]
fn locked_catalogs(scene: &mut Scene, statement: &str) -> Vec<String> {
    scene.session.exec(&format!("BEGIN; {statement}"));
    let pid = scene.session.pid();
    let locked = scene.observer.texts(&format!(
        "SELECT relation::regclass || ' ' || mode FROM pg_locks
          WHERE pid = {pid} AND relation < 16384 ORDER BY 1"
    ));
    scene.session.exec("ROLLBACK");
    locked
}

#[test]
fn no_catalog_stays_locked_until_the_transaction_ends() {
    let mut scene = Scene::new(T);
    for statement in
        ["TRUNCATE t", "CLUSTER t USING t_pkey", "REINDEX TABLE t", "ALTER TABLE t SET UNLOGGED"]
    {
        scene.session.exec("SET stillpoint.enabled = off");
        let without = locked_catalogs(&mut scene, statement);
        scene.session.exec("SET stillpoint.enabled = on");
        assert_eq!(locked_catalogs(&mut scene, statement), without, "{statement}");
    }
    assert_eq!(locked_catalogs(&mut scene, "TRUNCATE t"), [""; 0]);
}

/// How much memory a session's caches use.
#[track_caller]
fn cache(session: &mut Session) -> i64 {
    session.number(
        "SELECT used_bytes FROM pg_backend_memory_contexts WHERE name = 'CacheMemoryContext'",
    )
}

#[test]
fn what_other_sessions_make_and_drop_leaves_nothing_in_a_sessions_memory() {
    let mut scene = Scene::new("CREATE TABLE w (id int); INSERT INTO w VALUES (1)");
    if scene.cluster.major_version() < 14 {
        // It does not show a session's memory.
        return;
    }
    let mut other = scene.cluster.session(DATABASE);
    // Few enough for the shared queue of messages: who falls behind hears of none.
    let mut round = |scene: &mut Scene| {
        scene.session.exec("BEGIN; UPDATE w SET id = id + 1");
        other.exec(
            "DO $$ BEGIN
                 FOR i IN 1..40 LOOP
                     CREATE TEMPORARY TABLE noise (a text PRIMARY KEY); COMMIT;
                     DROP TABLE noise; COMMIT;
                 END LOOP;
             END $$",
        );
        scene.session.exec("UPDATE w SET id = id + 1; COMMIT");
    };
    round(&mut scene);
    let _ = cache(&mut scene.session);
    let before = cache(&mut scene.session);
    for _ in 0..25 {
        round(&mut scene);
    }
    let grown = cache(&mut scene.session) - before;
    // A trace of each of a thousand tables would take half a megabyte.
    assert!(grown < 150_000, "{grown} bytes more than before");
}
