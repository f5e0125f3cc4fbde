//! `make demo`: what a plain dump loses when tables change while it starts, and what
//! `stillpoint dump` does about it. On a cluster of its own, which is gone afterwards.

use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;
use stillpoint_tests::race::{DatabaseState, Moment, Then, Window, drive};
use stillpoint_tests::{
    Cluster, Finished, Session, Stillpoint, TableDigest, pg_dump, pg_restore, pgbench,
    table_digest, wait_until,
};

const DATABASE: &str = "shop";

/// The barrier stands first, so that every dump comes to it before any other table.
const TABLES: &[&str] = &[
    "CREATE TABLE public.barrier (id int)",
    "CREATE TABLE orders (id int, amount int, remark text)",
    "INSERT INTO orders SELECT i, i * 7 % 1000, md5(i::text) FROM generate_series(1, 5000) AS i",
    "CREATE TABLE prices (id int, cents int)",
    "INSERT INTO prices SELECT i, i * 31 % 5000 FROM generate_series(1, 4000) AS i",
    "CREATE TABLE customers (id int PRIMARY KEY, name text)",
    "INSERT INTO customers SELECT i, 'customer ' || i FROM generate_series(1, 3000) AS i",
    "CREATE TABLE customers_next (id int PRIMARY KEY, name text)",
    "INSERT INTO customers_next SELECT i, 'newcomer ' || i FROM generate_series(1, 10) AS i",
    "CREATE TABLE sales (day date NOT NULL, amount int) PARTITION BY RANGE (day)",
    "CREATE TABLE sales_1 PARTITION OF sales FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
    "CREATE TABLE sales_2 PARTITION OF sales FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
    "CREATE TABLE sales_rest PARTITION OF sales DEFAULT",
    "INSERT INTO sales SELECT date '2026-01-01' + i % 90, i FROM generate_series(1, 2000) AS i",
    "CREATE TABLE papers (title text)",
    "CREATE TABLE contracts (signed date) INHERITS (papers)",
    "INSERT INTO papers SELECT 'paper ' || i FROM generate_series(1, 200) AS i",
    "INSERT INTO contracts SELECT 'contract ' || i, '2026-01-01' FROM generate_series(1, 100) AS i",
    "CREATE TABLE tickets (id serial PRIMARY KEY, subject text)",
    "INSERT INTO tickets (subject) SELECT 'ticket ' || i FROM generate_series(1, 700) AS i",
    "CREATE TABLE photos (content oid)",
    "INSERT INTO photos SELECT lo_from_bytea(0, convert_to(repeat(md5(i::text), 4000), 'UTF8')) \
       FROM generate_series(1, 3) AS i",
];

/// What another session does to a table while a dump starts.
struct Change {
    table: &'static str,
    what: &'static str,
    statements: &'static str,
}

const CHANGES: [Change; 3] = [
    Change {
        table: "orders",
        what: "TRUNCATE and reload",
        statements: "BEGIN; TRUNCATE orders; INSERT INTO orders SELECT i, i * 9 % 1000, \
                     md5(i::text) FROM generate_series(1, 5000) AS i; COMMIT",
    },
    Change {
        table: "prices",
        what: "ALTER COLUMN TYPE",
        // Each time to the other type: to the same one would change nothing.
        statements: "DO $$ BEGIN EXECUTE 'ALTER TABLE prices ALTER COLUMN cents TYPE ' || \
                     CASE pg_typeof((SELECT cents FROM prices LIMIT 1)) \
                     WHEN 'bigint'::regtype THEN 'integer' ELSE 'bigint' END; END $$",
    },
    Change {
        table: "customers",
        what: "rename swap",
        statements: "BEGIN; ALTER TABLE customers RENAME TO customers_old; \
                     ALTER TABLE customers_next RENAME TO customers; \
                     ALTER TABLE customers_old RENAME TO customers_next; COMMIT",
    },
];

fn main() -> ExitCode {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let cluster = Cluster::preloaded();
    let home = cluster.host().to_owned();
    set_up(&cluster);
    lose_rows(&cluster, directory.path());
    let whole = hold_still(&cluster, directory.path());

    // pg_dump may have stumbled; that was shown.
    cluster.allow_log("pg_dump shop ERROR:  ");
    drop(cluster);
    drop(directory);
    if home.exists() {
        println!("\n{} is left behind", home.display());
        return ExitCode::FAILURE;
    }
    println!("\nThe cluster and its files are gone again.");
    if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn set_up(cluster: &Cluster) {
    cluster.create_database(DATABASE);
    cluster.create_extension(DATABASE);
    let mut session = cluster.session(DATABASE);
    for statement in TABLES {
        session.exec(statement);
    }
    pgbench(cluster, DATABASE).args(["-i", "-q", "-s", "1"]).run().assert_exit(0);
    let state = DatabaseState::read(&mut session);
    println!(
        "PostgreSQL {}, a cluster of its own. Database \"{DATABASE}\": {} tables with {} rows,\n\
         among them pgbench's, partitions, inheritance children; large objects; a sequence.\n\
         While a dump starts, after its snapshot and before its locks, other sessions commit:\n",
        session.text("SHOW server_version").split(' ').next().unwrap_or_default(),
        state.tables().count(),
        grouped(state.tables().map(|(_, rows)| rows).sum())
    );
    for change in CHANGES {
        println!("    {:12} {}", change.table, change.what);
    }
}

/// Plain `pg_dump`, one change at a time, for one alone is enough.
fn lose_rows(cluster: &Cluster, directory: &Path) {
    println!("\n1. pg_dump -Fd -j2, with one of these changes each\n");
    for (number, change) in CHANGES.iter().enumerate() {
        let mut session = cluster.session(DATABASE);
        let truth = table_digest(&mut session, change.table);
        let archive = directory.join(format!("plain_{number}"));

        session.exec("BEGIN; LOCK TABLE public.barrier");
        let dump = pg_dump(cluster, DATABASE).args(["-Fd", "-j2", "-f"]).arg(&archive).spawn();
        wait_until(
            &mut cluster.session(DATABASE),
            &format!(
                "SELECT count(*) > 0 FROM pg_stat_activity \
                  WHERE application_name = 'pg_dump' AND {} = ANY (pg_blocking_pids(pid))",
                session.pid()
            ),
        );
        cluster.session(DATABASE).exec(change.statements);
        session.exec("COMMIT");
        let dump = dump.wait();
        println!(
            "    {:12} {:20} {}",
            change.table,
            change.what,
            fate(cluster, change.table, &truth, &archive, &dump)
        );
    }
    println!("\n    Right would have been: an error, or the rows that its snapshot saw.");
}

/// What became of a table in a plain dump, in words.
fn fate(
    cluster: &Cluster,
    table: &str,
    truth: &TableDigest,
    archive: &Path,
    dump: &Finished,
) -> String {
    if dump.code() != Some(0) {
        return format!("pg_dump dies: {}", dump.stderr.lines().next().unwrap_or_default());
    }
    cluster.create_database("plain");
    let restore = pg_restore(cluster, "plain").arg("-j2").arg(archive).run();
    let fate = if restore.code() == Some(0) {
        let held = table_digest(&mut cluster.session("plain"), table);
        let (rows, truth_rows) = (grouped(held.rows), grouped(truth.rows));
        match held {
            held if held == *truth => "exit status 0, and right".into(),
            held if held.rows == 0 => format!("exit status 0, but 0 of {truth_rows} rows"),
            _ => format!("exit status 0, but {rows} rows of another table, not its {truth_rows}"),
        }
    } else {
        format!("exit status 0, but: {}", restore.stderr.lines().next().unwrap_or_default())
    };
    cluster.drop_database("plain");
    fate
}

/// `stillpoint dump` with all changes at once; whether the restored database is the source.
fn hold_still(cluster: &Cluster, directory: &Path) -> bool {
    println!("\n2. stillpoint dump, with all of these changes at once\n");
    let archive = directory.join("shop.dump");
    let dump = Stillpoint::dump(cluster, DATABASE, &archive);
    let dump = drive(cluster, DATABASE, dump, |Moment { attempt, window }| {
        if (attempt, window) != (1, Window::BeforeLocks) {
            return Then::NextWindow;
        }
        for change in CHANGES {
            cluster.session(DATABASE).exec(change.statements);
        }
        Then::End
    });
    let report: Value = match serde_json::from_str(&dump.stdout) {
        Ok(report) if matches!(dump.code(), Some(0 | 2)) => report,
        _ => {
            println!("{}", dump.scene());
            return false;
        }
    };
    for (number, attempt) in list(&report["attempts"]).iter().enumerate() {
        let outcome = match attempt["outcome"].as_str() {
            Some("verified") => "every table is what its snapshot promises",
            Some("moved") => "tables moved after its snapshot; started again",
            _ => "given up",
        };
        println!("    attempt {}: {outcome}", number + 1);
        for change in list(&attempt["changes"]) {
            let reasons: Vec<_> = list(&change["reasons"]).iter().map(text).collect();
            println!("        {:16} {}", text(&change["name"]), reasons.join(", "));
        }
    }
    let complete = if report["complete"] == true { "complete" } else { "not complete" };
    println!("    exit status {}, {complete}", dump.code().unwrap_or(-1));

    println!("\n3. pg_restore -j2 into an empty database, and every table compared\n");
    cluster.create_database("restored");
    let restore = pg_restore(cluster, "restored").arg("-j2").arg(&archive).run();
    if restore.code() != Some(0) {
        println!("{}", restore.scene());
        return false;
    }
    // Nothing has changed since the last attempt's snapshot: the source is what it saw.
    let mut source = cluster.session(DATABASE);
    let mut restored = cluster.session("restored");
    let expected = DatabaseState::read(&mut source);
    let mut differences = expected.difference(&DatabaseState::read(&mut restored));
    let (objects, restored_objects) = (large_objects(&mut source), large_objects(&mut restored));
    if objects != restored_objects {
        differences += "the large objects differ\n";
    }
    if differences.is_empty() && dump.code() == Some(0) {
        println!(
            "    all {} tables, the sequence and all {} large objects are equal in rows and checksum",
            expected.tables().count(),
            objects.len()
        );
        return true;
    }
    println!("{differences}\n{}", dump.scene());
    false
}

fn large_objects(session: &mut Session) -> Vec<Vec<Option<String>>> {
    session.rows("SELECT oid, md5(lo_get(oid)) FROM pg_largeobject_metadata ORDER BY oid")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A number as people read it: `120,000`.
fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
