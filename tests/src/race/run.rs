//! Runs a race case and judges what came of it.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::{Case, Check, DatabaseState, Moment, Step, Then, Verdict, drive};
use crate::wait::poll;
use crate::{Background, Cluster, DEADLINE, Finished, Session, Stillpoint, restore_into};

/// What every case's database holds, the barrier before all else.
const COMMON: &[&str] = &[
    "CREATE TABLE public.barrier (id int)",
    "CREATE TABLE public.t (id int PRIMARY KEY, word text NOT NULL)",
    "INSERT INTO public.t SELECT i, md5(i::text) FROM generate_series(1, 900) AS i",
    "CREATE TABLE public.p (id int NOT NULL, word text) PARTITION BY RANGE (id)",
    "CREATE TABLE public.p1 PARTITION OF public.p FOR VALUES FROM (1) TO (51)",
    "CREATE TABLE public.p2 PARTITION OF public.p FOR VALUES FROM (51) TO (101)",
    "INSERT INTO public.p SELECT i, md5(i::text) FROM generate_series(1, 100) AS i",
    // Gets a row in every window: whose moment a dump shows is seen here, whatever the case's
    // own tables show.
    "CREATE TABLE public.witness (attempt int PRIMARY KEY)",
    "INSERT INTO public.witness VALUES (0)",
    "CREATE SEQUENCE public.numbers",
    "SELECT setval('public.numbers', 42)",
];

/// Runs the case in databases of its own and drops them again.
///
/// # Panics
///
/// If anything is not as the case says, with the scene.
#[track_caller]
pub fn run(cluster: &Cluster, case: &Case, check: Check) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive");
    cluster.create_database("source");
    if check == Check::Extension {
        cluster.create_extension("source");
    }
    for part in case.logged {
        cluster.allow_log(part);
    }
    // What an attempt that is over was still reading is ended, with it its pg_dump.
    cluster.allow_cancelled_statements();
    let mut observer = cluster.session("source");
    for statement in COMMON.iter().chain(case.setup) {
        observer.exec(statement);
    }

    let mut others = Others::new(cluster);
    others.perform(case.before);
    // Entry n is what the database holds when the snapshot of attempt n + 1 is taken.
    let mut states = vec![DatabaseState::read(&mut observer)];
    let verdict = case.verdict.under(check);
    let dump = Stillpoint::dump(cluster, "source", &archive)
        .args(["--attempts", &case.attempts.to_string()])
        .args(case.arguments);
    let finished = drive(cluster, "source", dump, |Moment { attempt, window }| {
        if window != case.window {
            return Then::NextWindow;
        }
        others.perform(case.steps);
        observer.exec(&format!("INSERT INTO public.witness VALUES ({attempt})"));
        if verdict == Verdict::LeftOut && attempt < case.attempts {
            states.push(DatabaseState::read(&mut observer));
            return Then::NextWindow;
        }
        Then::End
    });
    others.finish();
    // A second attempt that nobody disturbed has seen what is there now.
    states.push(DatabaseState::read(&mut observer));

    let expected = Expected::of(case, verdict, &states);
    expected.assert_report(&finished, case, check);
    assert!(!archive.with_extension("partial").exists(), "{}", finished.scene());
    expected.assert_manifest(&archive, &finished);
    restore_into(cluster, &archive, "restored");
    let found = DatabaseState::read(&mut cluster.session("restored"));
    let difference = expected.state.difference(&found);
    assert!(
        difference.is_empty(),
        "the restored database differs\n{difference}{}",
        finished.scene()
    );

    drop((observer, others));
    for database in ["source", "restored"] {
        cluster.drop_database(database);
    }
    cluster.check_log();
}

/// The sessions that race against the dump.
struct Others<'a> {
    cluster: &'a Cluster,
    observer: Session,
    named: HashMap<&'static str, Session>,
    started: Vec<Background>,
}

impl<'a> Others<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let observer = cluster.session("source");
        Self { cluster, observer, named: HashMap::new(), started: Vec::new() }
    }

    #[track_caller]
    fn perform(&mut self, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Run(sql) => self.observer.exec(sql),
                Step::In(name, sql) => {
                    let cluster = self.cluster;
                    self.named.entry(name).or_insert_with(|| cluster.session("source")).exec(sql);
                }
                Step::Start(sql) => self.start(sql),
                Step::Finish => self.join(),
            }
        }
    }

    /// Ends the open sessions and with them what the started statements may wait for.
    #[track_caller]
    fn finish(&mut self) {
        self.named.clear();
        self.join();
    }

    #[track_caller]
    fn join(&mut self) {
        for statement in self.started.drain(..) {
            drop(statement.finish());
        }
    }

    #[track_caller]
    fn start(&mut self, sql: &str) {
        let statement = self.cluster.session("source").start(sql);
        let waits = format!(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE pid = {} AND NOT granted)",
            statement.pid()
        );
        let observer = &mut self.observer;
        let arrived =
            poll(DEADLINE, || (statement.has_ended() || observer.yes(&waits)).then_some(()));
        assert!(arrived.is_some(), "neither done nor waiting: {sql}");
        self.started.push(statement);
    }
}

/// What the dump must say and hold.
struct Expected {
    exit: i32,
    outcomes: Vec<&'static str>,
    left_out: Vec<&'static str>,
    state: DatabaseState,
}

impl Expected {
    fn of(case: &Case, verdict: Verdict, states: &[DatabaseState]) -> Self {
        let (outcomes, snapshot) = match verdict {
            Verdict::Go => (vec!["verified"], 0),
            Verdict::Retry | Verdict::RowsKept => (vec!["moved", "verified"], 1),
            Verdict::RetryAfterDdl => (vec!["ddl_failed", "verified"], 1),
            Verdict::LeftOut => {
                let mut outcomes = vec!["moved"; case.attempts - 1];
                outcomes.push("left_out");
                (outcomes, case.attempts - 1)
            }
        };
        let mut state = states[snapshot].clone().restricted_to(case.asked_for);
        let mut left_out = Vec::new();
        if verdict == Verdict::LeftOut {
            left_out.extend(case.changes.iter().map(|change| change.relation));
            for table in &left_out {
                state.empty(table);
            }
        }
        let exit = if left_out.is_empty() { 0 } else { 2 };
        Self { exit, outcomes, left_out, state }
    }

    #[track_caller]
    fn assert_report(&self, finished: &Finished, case: &Case, check: Check) {
        finished.assert_exit(self.exit);
        let report = finished.report();
        let complete = self.left_out.is_empty();
        let told = [
            (&report["command"], Value::from("dump")),
            (&report["outcome"], Value::from(if complete { "complete" } else { "incomplete" })),
            (&report["complete"], Value::from(complete)),
            (&report["check_method"], Value::from(check.as_str())),
        ];
        for (found, expected) in told {
            assert_eq!(*found, expected, "{}", finished.scene());
        }
        let attempts = list(&report["attempts"]);
        let outcomes: Vec<_> = attempts.iter().map(|attempt| &attempt["outcome"]).collect();
        assert_eq!(outcomes, self.outcomes, "{}", finished.scene());
        let kept = case.verdict == Verdict::RowsKept && check == Check::Extension;
        let expected: BTreeMap<_, _> =
            case.changes.iter().map(|change| ToldChange::expected(change, kept)).collect();
        for attempt in attempts {
            let found: BTreeMap<_, _> =
                list(&attempt["changes"]).iter().map(ToldChange::told).collect();
            let undisturbed = attempt["outcome"] == "verified" && self.outcomes.len() > 1;
            if undisturbed {
                assert!(found.is_empty(), "{found:?}\n{}", finished.scene());
            } else {
                assert_eq!(found, expected, "{}", finished.scene());
            }
        }
        for relation in &self.left_out {
            finished.assert_stderr(relation);
        }
    }

    #[track_caller]
    fn assert_manifest(&self, archive: &std::path::Path, finished: &Finished) {
        let text = std::fs::read_to_string(archive.join("manifest.json"));
        let text =
            text.unwrap_or_else(|error| panic!("no manifest: {error}\n{}", finished.scene()));
        let manifest: Value = serde_json::from_str(&text).expect("the manifest is JSON");
        assert_eq!(manifest["complete"], self.left_out.is_empty(), "{text}");
        let left_out: Vec<_> = list(&manifest["left_out"]).iter().map(relation_name).collect();
        assert_eq!(left_out, self.left_out, "{text}");
        let mut files: BTreeMap<String, i64> = BTreeMap::new();
        for file in list(&manifest["files"]).iter().filter(|file| !file["relation"].is_null()) {
            let rows = file["rows"].as_i64().expect("a table's file has rows");
            assert!(files.insert(relation_name(file), rows).is_none(), "twice in {text}");
        }
        files.remove(super::BARRIER);
        let expected: BTreeMap<String, i64> = self
            .state
            .tables()
            .filter(|(name, _)| !self.left_out.contains(name))
            .map(|(name, rows)| (name.to_owned(), rows))
            .collect();
        assert_eq!(files, expected, "rows in the manifest\n{}", finished.scene());
    }
}

/// A relation's entry in an attempt, as the report and as the case has it.
#[derive(Debug, PartialEq, Eq)]
struct ToldChange {
    reasons: Vec<String>,
    ancestors: Vec<String>,
    harmless: bool,
    rows_kept: bool,
}

impl ToldChange {
    /// `kept`: every row is proven to be in the new storage.
    fn expected(change: &super::Change, kept: bool) -> (String, Self) {
        let sorted = |names: &[&str]| {
            let mut names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            names.sort();
            names
        };
        let told = Self {
            reasons: sorted(change.reasons),
            ancestors: sorted(change.ancestors),
            harmless: change.harmless || kept,
            rows_kept: kept,
        };
        (change.relation.to_owned(), told)
    }

    fn told(change: &Value) -> (String, Self) {
        let sorted = |names: &Value| {
            let mut names: Vec<_> = list(names).iter().map(text).collect();
            names.sort();
            names
        };
        let told = Self {
            reasons: sorted(&change["reasons"]),
            ancestors: sorted(&change["ancestors"]),
            harmless: change["harmless"] == true,
            rows_kept: change["rows_kept"] == true,
        };
        (format!("{}.{}", text(&change["schema"]), text(&change["name"])), told)
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Of an entry in `files` or `left_out`.
fn relation_name(entry: &Value) -> String {
    format!("{}.{}", text(&entry["schema"]), text(&entry["relation"]))
}
