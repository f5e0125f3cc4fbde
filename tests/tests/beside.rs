//! The export beside `pg_dump`, which is held up by a view that only it looks at.

use std::path::PathBuf;

use stillpoint_tests::{
    Cluster, Finished, Session, Stillpoint, restore_into, table_digest, wait_until,
};
use tempfile::TempDir;

/// A database with two tables and a view that reads neither, so that who locks it locks nothing
/// else.
fn start() -> (Cluster, TempDir, PathBuf) {
    let cluster = Cluster::start();
    cluster.create_database("db");
    let mut session = cluster.session("db");
    session.exec("CREATE VIEW v AS SELECT 1 AS one");
    session.exec("CREATE TABLE t AS SELECT generate_series(1, 900) AS id");
    session.exec("CREATE TABLE large (id int, word text)");
    session.exec("ALTER TABLE large ALTER COLUMN word SET STORAGE EXTERNAL");
    session
        .exec("INSERT INTO large SELECT i, repeat('x', 3000) FROM generate_series(1, 1000) AS i");
    session.exec("ANALYZE");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    (cluster, directory, archive)
}

/// Holds up every `pg_dump` that has locked its tables, until the session commits.
fn hold_up_pg_dump(cluster: &Cluster) -> Session {
    let mut holder = cluster.session("db");
    holder.exec("BEGIN; LOCK TABLE v IN ACCESS EXCLUSIVE MODE");
    holder
}

/// Holds up every worker in the middle of `large`, until the session ends its transaction: what
/// stands beside a table is found by an index, which nobody has locked.
fn hold_up_workers(cluster: &Cluster) -> Session {
    let mut holder = cluster.session("db");
    let index = holder.text(
        "SELECT indexrelid::regclass FROM pg_index JOIN pg_class AS c ON reltoastrelid = indrelid \
          WHERE c.oid = 'large'::regclass",
    );
    holder.exec(&format!("BEGIN; REINDEX INDEX {index}"));
    holder
}

#[track_caller]
fn wait_for_worker(observer: &mut Session, holder: &Session) {
    wait_until(
        observer,
        &format!(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'stillpoint' \
             AND {} = ANY (pg_blocking_pids(pid)))",
            holder.pid()
        ),
    );
}

/// Waits until `pg_dump` waits for the session.
#[track_caller]
fn wait_for_pg_dump(observer: &mut Session, holder: &Session) {
    wait_until(
        observer,
        &format!(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'pg_dump%' \
             AND {} = ANY (pg_blocking_pids(pid)))",
            holder.pid()
        ),
    );
}

/// Waits until the workers have read all their tables. There must be two: the second one's
/// session is not asked for anything after that.
#[track_caller]
fn wait_for_export(observer: &mut Session) {
    wait_until(
        observer,
        "SELECT count(*) FILTER (WHERE state = 'idle in transaction' \
                                   AND query LIKE 'COPY \"public\".\"t\"%') = 1 \
            AND count(*) FILTER (WHERE state = 'active' AND query LIKE 'COPY%') = 0 \
           FROM pg_stat_activity WHERE application_name = 'stillpoint'",
    );
}

fn outcomes(finished: &Finished) -> Vec<String> {
    let report = finished.report();
    let attempts = report["attempts"].as_array().expect("attempts are a list");
    attempts.iter().map(|it| it["outcome"].as_str().unwrap_or_default().to_owned()).collect()
}

#[track_caller]
fn assert_restores(cluster: &Cluster, archive: &std::path::Path) {
    restore_into(cluster, archive, "restored");
    for table in ["t", "large"] {
        let source = table_digest(&mut cluster.session("db"), table);
        assert_eq!(table_digest(&mut cluster.session("restored"), table), source, "{table}");
    }
}

#[test]
fn rows_are_exported_while_pg_dump_still_reads_definitions() {
    let (cluster, _directory, archive) = start();
    let mut observer = cluster.session("db");
    let mut holder = hold_up_pg_dump(&cluster);
    let dump = Stillpoint::dump(&cluster, "db", &archive).arg("-j2").spawn();
    wait_for_export(&mut observer);
    wait_for_pg_dump(&mut observer, &holder);
    holder.exec("COMMIT");
    let finished = dump.wait();
    finished.assert_exit(0);
    assert_eq!(outcomes(&finished), ["verified"], "{}", finished.scene());
    assert_restores(&cluster, &archive);
}

#[test]
fn an_exclusive_lock_asked_for_while_pg_dump_takes_its_own_goes_before_the_workers() {
    let (cluster, _directory, archive) = start();
    let mut observer = cluster.session("db");
    let mut holder = cluster.session("db");
    // The last that pg_dump locks.
    holder.exec("BEGIN; LOCK TABLE large");
    let dump = Stillpoint::dump(&cluster, "db", &archive).spawn();
    wait_for_pg_dump(&mut observer, &holder);
    // Queued behind pg_dump; a worker that asked now would wait for the end of both.
    let truncate = cluster.session("db").start("TRUNCATE t");
    wait_until(
        &mut observer,
        &format!("SELECT cardinality(pg_blocking_pids({})) > 0", truncate.pid()),
    );
    holder.exec("COMMIT");
    let finished = dump.wait();
    drop(truncate.finish());
    finished.assert_exit(0);
    assert_eq!(outcomes(&finished), ["moved", "verified"], "{}", finished.scene());
    assert_restores(&cluster, &archive);
}

#[test]
fn exclusive_locks_asked_for_beside_pg_dump_wait_and_freeze_neither_it_nor_the_export() {
    let (cluster, _directory, archive) = start();
    let mut observer = cluster.session("db");
    let mut holder = hold_up_pg_dump(&cluster);
    let mut reindexing = hold_up_workers(&cluster);
    let dump = Stillpoint::dump(&cluster, "db", &archive).arg("-j2").spawn();
    wait_for_pg_dump(&mut observer, &holder);
    wait_for_worker(&mut observer, &reindexing);
    let waiting = ["t", "large"].map(|table| {
        let statement = cluster.session("db").start(&format!("TRUNCATE {table}"));
        let pid = statement.pid();
        wait_until(&mut observer, &format!("SELECT cardinality(pg_blocking_pids({pid})) = 2"));
        statement
    });
    reindexing.exec("ROLLBACK");
    wait_for_export(&mut observer);
    holder.exec("COMMIT");
    let finished = dump.wait();
    finished.assert_exit(0);
    assert_eq!(outcomes(&finished), ["verified"], "{}", finished.scene());
    for statement in waiting {
        drop(statement.finish());
    }
    restore_into(&cluster, &archive, "restored");
    let mut restored = cluster.session("restored");
    assert_eq!(restored.number("SELECT count(*) FROM t"), 900);
    assert_eq!(restored.number("SELECT count(*) FROM large"), 1000);
}

#[test]
fn tables_that_moved_end_a_pg_dump_that_would_still_wait() {
    let (cluster, _directory, archive) = start();
    cluster.allow_cancelled_statements();
    let mut observer = cluster.session("db");
    let mut holder = hold_up_pg_dump(&cluster);
    let mut truncating = cluster.session("db");
    truncating.exec("BEGIN; TRUNCATE t");
    let dump = Stillpoint::dump(&cluster, "db", &archive).spawn();
    wait_for_pg_dump(&mut observer, &truncating);
    let first = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pg_dump%'";
    let first = observer.number(first);
    truncating.exec("COMMIT");
    // The next attempt's.
    wait_until(
        &mut observer,
        &format!(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'pg_dump%' \
             AND pid <> {first} AND {} = ANY (pg_blocking_pids(pid)))",
            holder.pid()
        ),
    );
    holder.exec("COMMIT");
    let finished = dump.wait();
    finished.assert_exit(0);
    assert_eq!(outcomes(&finished), ["moved", "verified"], "{}", finished.scene());
    assert_restores(&cluster, &archive);
}

/// Ends `pg_dump` while a worker is in the middle of a table, after some statements.
fn end_pg_dump_during_the_export(
    cluster: &Cluster,
    archive: &std::path::Path,
    before: &str,
) -> Finished {
    cluster.allow_cancelled_statements();
    cluster.allow_log("terminating connection due to administrator command");
    let mut observer = cluster.session("db");
    let mut holder = hold_up_pg_dump(cluster);
    let mut reindexing = hold_up_workers(cluster);
    let dump = Stillpoint::dump(cluster, "db", archive).spawn();
    wait_for_pg_dump(&mut observer, &holder);
    wait_for_worker(&mut observer, &reindexing);
    observer.exec(before);
    observer.exec(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
          WHERE application_name LIKE 'pg_dump%'",
    );
    // The worker is told to stop, and does not wait until it is let go.
    wait_until(
        &mut observer,
        &format!(
            "SELECT NOT EXISTS (SELECT FROM pg_stat_activity \
             WHERE application_name = 'stillpoint' AND {} = ANY (pg_blocking_pids(pid)))",
            reindexing.pid()
        ),
    );
    reindexing.exec("ROLLBACK");
    holder.exec("COMMIT");
    dump.wait()
}

#[test]
fn a_pg_dump_that_fails_beside_the_export_ends_the_dump_with_its_own_words() {
    let (cluster, _directory, archive) = start();
    let finished = end_pg_dump_during_the_export(&cluster, &archive, "SELECT 1");
    finished.assert_exit(1).assert_stderr("could not dump the definitions: pg_dump: error: ");
    assert_eq!(outcomes(&finished), [""; 0], "{}", finished.scene());
    assert!(!archive.exists() && !archive.with_extension("partial").exists());
}

#[test]
fn a_pg_dump_that_ddl_has_spoilt_beside_the_export_costs_an_attempt() {
    let (cluster, _directory, archive) = start();
    let ddl = "CREATE TABLE later AS SELECT 1 AS id";
    let finished = end_pg_dump_during_the_export(&cluster, &archive, ddl);
    finished.assert_exit(0);
    assert_eq!(outcomes(&finished), ["ddl_failed", "verified"], "{}", finished.scene());
    assert_restores(&cluster, &archive);
    assert_eq!(cluster.session("restored").number("SELECT id FROM later"), 1);
}

#[test]
fn a_catalog_that_somebody_wants_for_himself_costs_an_attempt_and_freezes_nothing() {
    let (cluster, _directory, archive) = start();
    // Whether a session of ours has started before the catalog is asked for is a matter of chance:
    // it is given up while it starts, or its first query is.
    cluster.allow_cancelled_statements();
    cluster.allow_log("canceling statement due to lock timeout");
    let mut observer = cluster.session("db");
    let mut holder = hold_up_pg_dump(&cluster);
    let dump =
        Stillpoint::dump(&cluster, "db", &archive).args(["-j2", "--lock-timeout", "3"]).spawn();
    wait_for_export(&mut observer);
    wait_for_pg_dump(&mut observer, &holder);
    let vacuum = cluster.session("db");
    let is_queued = format!("SELECT cardinality(pg_blocking_pids({})) > 0", vacuum.pid());
    // What this looks up must be known before: to look it up waits for the catalog, too.
    observer.exec(&is_queued);
    let vacuum = vacuum.start("VACUUM FULL pg_class");
    wait_until(&mut observer, &is_queued);
    holder.exec("COMMIT");
    let finished = dump.wait();
    finished.assert_exit(0).assert_stderr("VACUUM FULL pg_class");
    assert_eq!(outcomes(&finished), ["lock_timeout", "verified"], "{}", finished.scene());
    drop(vacuum.finish());
    assert_restores(&cluster, &archive);
}

#[test]
fn no_half_of_another_table_stays_in_the_archive() {
    let (cluster, _directory, archive) = start();
    cluster.allow_log("cache lookup failed for type");
    let mut observer = cluster.session("db");
    observer.exec("CREATE TYPE word AS ENUM ('word')");
    observer.exec("CREATE SCHEMA a; CREATE TABLE a.late (words word[])");
    observer.exec("CREATE SCHEMA b; CREATE TABLE b.late (words word[])");
    // The first word is met when much has been read.
    observer.exec("INSERT INTO b.late SELECT NULL FROM generate_series(1, 50000)");
    observer.exec("INSERT INTO b.late VALUES ('{word}')");
    let mut reindexing = hold_up_workers(&cluster);
    let dump = Stillpoint::dump(&cluster, "db", &archive)
        .args(["-n", "public", "-n", "a", "--attempts", "1", "-j", "1"])
        .spawn();
    wait_for_worker(&mut observer, &reindexing);
    // Names are compared when pg_dump has ended, and this is what comes after that.
    wait_until(
        &mut observer,
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'stillpoint' \
         AND state = 'idle in transaction' AND query LIKE 'SELECT l.relation %')",
    );
    // A type that is gone is what one can see in the middle of DDL.
    observer.exec(
        "BEGIN; ALTER SCHEMA a RENAME TO old; ALTER SCHEMA b RENAME TO a; \
         SET LOCAL allow_system_table_mods = on; DELETE FROM pg_type WHERE typname = 'word'; \
         COMMIT",
    );
    reindexing.exec("ROLLBACK");
    let finished = dump.wait();
    finished.assert_exit(2);
    let report = finished.report();
    assert_eq!(report["left_out"][0]["relation"], "late", "{}", finished.scene());
    let relation = observer.text("SELECT 'old.late'::regclass::oid::text");
    let files = std::fs::read_dir(&archive).expect("the archive is a directory");
    let names = files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned());
    let of_late: Vec<String> =
        names.filter(|name| name.starts_with(&format!("{relation}."))).collect();
    assert_eq!(of_late, [""; 0], "{}", finished.scene());
    Stillpoint::unconnected(&cluster, "verify").arg(&archive).run().assert_exit(0);
}

/// Ends one of our sessions while a worker is in the middle of a table. `which` orders them.
fn end_a_session_during_the_export(which: &str) {
    let (cluster, _directory, archive) = start();
    cluster.allow_cancelled_statements();
    cluster.allow_log("terminating connection due to administrator command");
    let mut observer = cluster.session("db");
    let mut holder = hold_up_pg_dump(&cluster);
    let mut reindexing = hold_up_workers(&cluster);
    let dump = Stillpoint::dump(&cluster, "db", &archive).spawn();
    wait_for_pg_dump(&mut observer, &holder);
    wait_for_worker(&mut observer, &reindexing);
    observer.exec(&format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
          WHERE application_name = 'stillpoint' ORDER BY {which} LIMIT 1"
    ));
    let finished = dump.wait();
    finished.assert_exit(1).assert_stderr("terminating connection due to administrator command");
    assert_eq!(outcomes(&finished), [""; 0], "{}", finished.scene());
    assert!(!archive.exists() && !archive.with_extension("partial").exists());
    reindexing.exec("ROLLBACK");
    holder.exec("COMMIT");
}

#[test]
fn a_worker_whose_session_is_ended_tells_what_the_server_said() {
    end_a_session_during_the_export("cardinality(pg_blocking_pids(pid)) DESC");
}

#[test]
fn a_snapshot_whose_session_is_ended_tells_what_the_server_said() {
    end_a_session_during_the_export("backend_start");
}
