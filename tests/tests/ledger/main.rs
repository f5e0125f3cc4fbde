//! The ledger: what is recorded of every statement, when, and what nobody can do to it.

mod by_themselves;
mod catalogs;
mod disturbed;
mod durability;
mod failures;
mod forms_of_alter_table;
mod fuzz;
mod held;
mod hooks;
mod in_functions;
mod in_transactions;
mod installation;
mod intervals;
mod preparing;
mod privileges;
mod pruning;
mod refusals;
mod replication;
mod rows_kept;
mod savepoints;
mod side_effects;
mod upgrades;

use postgres::error::DbError;
use stillpoint_tests::ledger::{Entry, Mark, Scope, Storage, findings};
use stillpoint_tests::{Cluster, ClusterOptions, Session};

/// A cluster is one test's, so its first database is as good as a new one, and there at once.
const DATABASE: &str = "postgres";

/// A table with an index and a TOAST table, and rows in it.
const T: &str = "CREATE TABLE t (id int PRIMARY KEY, word text);
                 INSERT INTO t SELECT i, i FROM generate_series(1, 100) AS i";

/// A cluster that records, and a session of it.
struct Scene {
    session: Session,
    /// Reads catalog and ledger, whatever the session is in the middle of.
    observer: Session,
    /// Ends last, so that the sessions are closed before the server is stopped.
    cluster: Cluster,
}

impl Scene {
    #[track_caller]
    fn new(setup: &str) -> Self {
        Self::with(ClusterOptions::default(), setup)
    }

    /// With settings besides the library's preloading.
    #[track_caller]
    fn with(options: ClusterOptions, setup: &str) -> Self {
        let cluster = options.preload().start();
        cluster.create_extension(DATABASE);
        let mut session = cluster.session(DATABASE);
        session.exec(setup);
        let observer = cluster.session(DATABASE);
        Self { session, observer, cluster }
    }

    /// Nothing but `setup` in the schema `public`.
    #[track_caller]
    fn reset(&mut self, setup: &str) {
        self.session.exec("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
        self.session.exec(setup);
    }

    /// Begins to look.
    #[track_caller]
    fn watch(&mut self) -> Watch {
        Watch {
            before: Storage::read(&mut self.observer, Scope::Users),
            mark: Mark::now(&mut self.observer),
        }
    }

    /// What the ledger says that statements have done; each of them is a message of its own.
    #[track_caller]
    fn told(&mut self, statements: &[&str]) -> Vec<String> {
        let watch = self.watch();
        for statement in statements {
            self.session.exec(statement);
        }
        watch.told(&mut self.observer)
    }

    /// The error that a statement of the session ends with.
    #[track_caller]
    fn refusal(&mut self, sql: &str) -> DbError {
        refusal(&self.cluster, &mut self.session, sql)
    }

    /// All rows of the ledger about users' relations that are not finished.
    #[track_caller]
    fn open(&mut self) -> Vec<String> {
        let sql = "SELECT relation_name FROM stillpoint.invalidation
                    WHERE finished_xid IS NULL AND relation >= 16384 ORDER BY relation_name";
        self.observer.texts(sql)
    }
}

/// The catalog and the ledger as they were.
struct Watch {
    before: Storage,
    mark: Mark,
}

impl Watch {
    /// What the ledger has said since, a line for each row: effect, relation, command, and of
    /// tables whether the rows are kept. Every row has been found to be what the catalog says,
    /// and none to be missing.
    #[track_caller]
    fn told(&self, session: &mut Session) -> Vec<String> {
        let after = Storage::read(session, Scope::Users);
        let entries = self.entries(session);
        let found = findings(&self.before, &after, &entries, 1);
        assert!(found.is_empty(), "{}", found.join("\n"));
        self.lines(&after, &entries)
    }

    /// The rows since.
    #[track_caller]
    fn entries(&self, session: &mut Session) -> Vec<Entry> {
        Entry::since(session, self.mark, Scope::Users)
    }

    fn lines(&self, after: &Storage, entries: &[Entry]) -> Vec<String> {
        let mut lines: Vec<_> = entries
            .iter()
            .map(|entry| {
                let relation = self.before.get(entry.relation).or(after.get(entry.relation));
                let label = relation.map_or(entry.name.as_str(), |found| found.label.as_str());
                let command = entry.command.as_deref().unwrap_or("nothing");
                let kept = match entry.kind.as_str() {
                    "r" | "m" if entry.rows_kept => ", rows kept",
                    _ => "",
                };
                format!("{} {label} by {command}{kept}", entry.effect.name())
            })
            .collect();
        lines.sort();
        lines
    }
}

/// What is told when the same happens to a table of the form of [`T`], its index, its TOAST
/// table and that one's index.
fn whole(effect: &str, table: &str, command: &str) -> Vec<String> {
    let parts = ["", "_pkey", "toast of ", "toast index of "].map(|part| match part {
        "" | "_pkey" => format!("{effect} {table}{part} by {command}"),
        _ => format!("{effect} {part}{table} by {command}"),
    });
    sorted(parts)
}

/// As [`whole`], for a rewrite that keeps the rows.
fn whole_kept(table: &str, command: &str) -> Vec<String> {
    let heap = format!("replaced {table} by {command}");
    let kept = |line: String| if line == heap { format!("{line}, rows kept") } else { line };
    sorted(whole("replaced", table, command).into_iter().map(kept))
}

fn sorted(lines: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    let mut lines: Vec<String> = lines.into_iter().map(Into::into).collect();
    lines.sort();
    lines
}

/// What statements do, and what must be told of them.
struct Case {
    what: &'static str,
    setup: &'static str,
    statements: &'static [&'static str],
    told: &'static [&'static str],
}

/// Runs cases one after the other on a cluster that has a second tablespace `elsewhere` and a
/// table access method `heap2`, which is the heap under another name.
#[track_caller]
fn run_cases(cases: &[Case]) {
    let cluster_setup = "CREATE ACCESS METHOD heap2 TYPE TABLE HANDLER heap_tableam_handler";
    let mut scene = Scene::new(cluster_setup);
    scene.cluster.create_tablespace("elsewhere");
    let mut wrong = Vec::new();
    for case in cases {
        scene.reset(case.setup);
        let watch = scene.watch();
        for statement in case.statements {
            scene.session.exec(statement);
        }
        let after = Storage::read(&mut scene.observer, Scope::Users);
        let entries = watch.entries(&mut scene.observer);
        let mut found = findings(&watch.before, &after, &entries, 1);
        let (told, expected) = (watch.lines(&after, &entries), sorted(case.told.iter().copied()));
        if told != expected {
            found.push(format!("told: {told:#?}\nexpected: {expected:#?}"));
        }
        if !found.is_empty() {
            wrong.push(format!(
                "{}: {}\n{}",
                case.what,
                case.statements.join("; "),
                found.join("\n")
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The error that a statement ends with, which the server's log may hold.
#[track_caller]
fn refusal(cluster: &Cluster, session: &mut Session, sql: &str) -> DbError {
    let error = session.try_exec(sql).expect_err("the statement is refused");
    let error = error.as_db_error().expect("the server says why").clone();
    cluster.allow_log(error.message());
    error
}

/// The condition that a backend waits for a lock that `holder` has.
fn waits_behind(waiter: i32, holder: i32) -> String {
    format!("SELECT {holder} = ANY (pg_blocking_pids({waiter}))")
}
