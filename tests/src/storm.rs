//! Dumps in a storm of DDL, each restored and held against the oracle.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::oracle::{self, Storm, Weather};
use crate::random::Random;
use crate::wait::poll;
use crate::{Cluster, ClusterOptions, Finished, Stillpoint, pg_dump, pg_restore};

const DATABASE: &str = "storm";

/// The longest gust at the start of a dump. Some end during its first attempt, some outlast
/// its last one.
const GUST: Duration = Duration::from_secs(2);

/// What makes the dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `stillpoint dump`, checking with the extension.
    Extension,
    /// `stillpoint dump`, checking by plain SQL.
    PlainSql,
    /// `pg_dump -Fd`, in one process.
    PgDump,
    /// `pg_dump -Fd -j2`.
    ParallelPgDump,
}

impl Tool {
    /// All of them, in the order in which they take their turns.
    pub const ALL: [Self; 4] =
        [Self::Extension, Self::PlainSql, Self::PgDump, Self::ParallelPgDump];

    /// Whether it is the client under test.
    #[must_use]
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Extension | Self::PlainSql)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Extension => "stillpoint, extension",
            Self::PlainSql => "stillpoint, plain SQL",
            Self::PgDump => "pg_dump -Fd",
            Self::ParallelPgDump => "pg_dump -Fd -j2",
        }
    }
}

/// What became of the dumps of one tool.
#[derive(Clone, Debug)]
pub struct Tally {
    /// What made them.
    pub tool: Tool,
    /// How many were tried.
    pub dumps: u32,
    /// Met a change between snapshot and locks.
    pub conflicts: u32,
    /// Needed more than one snapshot.
    pub retried: u32,
    /// Were finished without the data of some table, and said so.
    pub left_out: u32,
    /// Hold exactly what the oracle promises, but for what they say they left out.
    pub right: u32,
    /// Claim success, and hold something else or cannot be restored.
    pub wrong: u32,
    /// Say that they failed, and leave no archive.
    pub failed: u32,
    /// What was wrong or failed, for the first few.
    pub findings: Vec<String>,
}

impl Tally {
    fn new(tool: Tool) -> Self {
        let findings = Vec::new();
        Self {
            tool,
            dumps: 0,
            conflicts: 0,
            retried: 0,
            left_out: 0,
            right: 0,
            wrong: 0,
            failed: 0,
            findings,
        }
    }

    fn wrong(&mut self, finding: String) {
        self.wrong += 1;
        self.find(finding);
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < 5 {
            self.findings.push(finding);
        }
    }
}

/// Lets a storm loose and dumps in it, with every tool in turn, for `duration`.
///
/// # Panics
///
/// If the server, a session of the storm or the harness fails; a dump that fails or is wrong
/// is counted.
#[must_use]
pub fn run(duration: Duration, weather: Weather) -> (Vec<Tally>, u64) {
    // Dumps and storm block each other crosswise; the sooner one is chosen to end, the more
    // dumps there are.
    let cluster = ClusterOptions::default().preload().setting("deadlock_timeout = '200ms'").start();
    cluster.create_database(DATABASE);
    let storm = Storm::start(&cluster, DATABASE, weather);
    let mut random = Random::new(!weather.seed);
    let mut tallies = Tool::ALL.map(Tally::new);
    let end = Instant::now() + duration;
    while Instant::now() < end {
        for tally in &mut tallies {
            one_dump(&cluster, &storm, &mut random, tally);
        }
    }
    let deeds = storm.end();
    // The log says after the time who was served. pg_dump's errors are what the storm is for,
    // and a retry of ours may begin with one.
    cluster.allow_log("pg_dump storm ERROR:  ");
    cluster.allow_log("pg_dump (stillpoint ");
    cluster.allow_log("pg_dump storm FATAL:  connection to client lost");
    cluster.allow_log("stillpoint storm ERROR:  ");
    cluster.allow_log("test storm ERROR:  deadlock detected");
    (tallies.into(), deeds)
}

fn one_dump(cluster: &Cluster, storm: &Storm, random: &mut Random, tally: &mut Tally) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let archive = directory.path().join("archive");
    let attempts = [1, 3, 8][random.below(3) as usize].to_string();
    set_extension(cluster, tally.tool == Tool::Extension);
    storm.gust();
    let mut dump = match tally.tool {
        Tool::Extension | Tool::PlainSql => Stillpoint::dump(cluster, DATABASE, &archive)
            .args(["-j", "2", "--attempts", &attempts])
            .spawn(),
        Tool::PgDump | Tool::ParallelPgDump => {
            let jobs = if tally.tool == Tool::PgDump { "-j1" } else { "-j2" };
            pg_dump(cluster, DATABASE).args(["-Fd", jobs, "-f"]).arg(&archive).spawn()
        }
    };
    poll(GUST.mul_f64(random.fraction()), || dump.has_ended().then_some(()));
    storm.lull();
    let dump = dump.wait();

    tally.dumps += 1;
    let left_out = match dump.code() {
        Some(0..=2) if tally.tool.is_ours() => count_report(tally, &dump),
        Some(0) => Some(BTreeSet::new()),
        _ => None,
    };
    match left_out {
        Some(left_out) => judge(cluster, &archive, &left_out, tally, &dump),
        None if tally.tool.is_ours() && archive.exists() => {
            tally.wrong(format!("a failed dump left an archive\n{}", dump.scene()));
        }
        None => {
            tally.failed += 1;
            tally.find(format!("failed: {}", dump.stderr.trim_end()));
        }
    }
}

/// Counts what the dump's report says; the names of the tables that it left out, or `None` if
/// it says that it failed.
fn count_report(tally: &mut Tally, dump: &Finished) -> Option<BTreeSet<String>> {
    let report = dump.report();
    let attempts = report["attempts"].as_array().map_or(0, Vec::len);
    let moved = report["attempts"][0]["outcome"] != "verified";
    tally.conflicts += u32::from(moved);
    tally.retried += u32::from(attempts > 1);
    if dump.code() == Some(1) {
        return None;
    }
    let method = if tally.tool == Tool::Extension { "extension" } else { "plain" };
    assert_eq!(report["check_method"], method, "the wrong check was used\n{}", dump.scene());
    let left_out: BTreeSet<String> = report["left_out"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|relation| relation["relation"].as_str().map(str::to_owned))
        .collect();
    tally.left_out += u32::from(!left_out.is_empty());
    assert_eq!(
        (report["complete"] == Value::Bool(true), dump.code() == Some(0)),
        (left_out.is_empty(), left_out.is_empty()),
        "report and exit status disagree\n{}",
        dump.scene()
    );
    Some(left_out)
}

/// Restores the archive as a user would and asks the oracle.
fn judge(
    cluster: &Cluster,
    archive: &Path,
    left_out: &BTreeSet<String>,
    tally: &mut Tally,
    dump: &Finished,
) {
    cluster.create_database("restored");
    let restore = pg_restore(cluster, "restored").arg("-j2").arg(archive).run();
    if restore.code() == Some(0) {
        let wrong = oracle::check(&mut cluster.session("restored"), left_out);
        if wrong.is_empty() {
            tally.right += 1;
        } else {
            tally.wrong(format!("{}\n{}", wrong.join("\n"), dump.scene()));
        }
    } else {
        tally.wrong(restore.scene());
    }
    cluster.drop_database("restored");
}

/// Without the extension the client has to check by plain SQL.
fn set_extension(cluster: &Cluster, wanted: bool) {
    let mut session = cluster.session(DATABASE);
    let there = session.yes("SELECT count(*) > 0 FROM pg_extension WHERE extname = 'stillpoint'");
    match (there, wanted) {
        (false, true) => session.exec("CREATE EXTENSION stillpoint"),
        (true, false) => session.exec("DROP EXTENSION stillpoint"),
        _ => {}
    }
}

/// The tallies as a table.
#[must_use]
pub fn table(tallies: &[Tally]) -> String {
    let mut table = String::from(
        "                          dumps  conflict  retried  left out  right  wrong  failed\n",
    );
    for tally in tallies {
        // pg_dump does not say what it met.
        let told = |count: u32| {
            if tally.tool.is_ours() { count.to_string() } else { "-".to_owned() }
        };
        let _ = writeln!(
            table,
            "{:24} {:>6} {:>9} {:>8} {:>9} {:>6} {:>6} {:>7}",
            tally.tool.name(),
            tally.dumps,
            told(tally.conflicts),
            told(tally.retried),
            told(tally.left_out),
            tally.right,
            tally.wrong,
            tally.failed
        );
    }
    table
}
