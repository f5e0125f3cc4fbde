//! What the ledger costs: the same work on a cluster with the library and on one without.
//!
//! The clusters are in memory: waiting for a disk would hide what the library costs, and one that is
//! shared would decide the outcome.

use std::fmt::Write as _;
use std::time::Instant;

use stillpoint_tests::figure::{Figure, Goal};
use stillpoint_tests::measure::Series;
use stillpoint_tests::{Cluster, ClusterOptions, pgbench, vacuumdb};

use crate::{Section, Size};

const DATABASE: &str = "small";

/// A round is cut into slices that take turns, so that whatever else the machine does meets both
/// clusters alike.
const SLICES: usize = 10;

/// Truncations in a round.
const TRUNCATIONS: usize = 2000;

/// Temporary tables in a round.
const TEMPORARY_TABLES: usize = 2000;

/// Seconds of a slice of pgbench.
const PGBENCH_SECONDS: usize = 2;

/// The two clusters.
struct Clusters {
    without: Cluster,
    with: Cluster,
}

/// The runs of one kind of work, in pairs.
#[derive(Default)]
struct Pairs {
    without: Series,
    with: Series,
    /// What it takes with the library, divided by what it takes without, a pair at a time: the
    /// machine's mood of the moment meets both.
    ratio: Series,
}

/// One slice of some work on a cluster: what it takes, or how much is done.
type Work = fn(&Cluster) -> f64;

/// Measures the ledger's costs; gives the page's section and the figures.
pub(super) fn run(size: Size) -> Section {
    let options = || {
        ClusterOptions::default()
            .in_memory()
            .setting("shared_buffers = 512MB")
            .setting("max_wal_size = 8GB")
            .setting("checkpoint_timeout = 1d")
    };
    let clusters = Clusters { without: options().start(), with: options().preload().start() };
    for cluster in [&clusters.without, &clusters.with] {
        super::dump::make_small_tables(cluster, size.tables);
        pgbench(cluster, DATABASE).args(["-i", "-q", "-s", "10"]).run().assert_exit(0);
        cluster.session(DATABASE).exec(
            "CREATE TABLE truncated (id int PRIMARY KEY, word text); \
             CREATE INDEX ON truncated (word)",
        );
    }
    clusters.with.create_extension(DATABASE);

    let truncate = clusters.compare("truncating a table", size.pairs, SLICES, truncate);
    let temporary = clusters.compare("making temporary tables", size.pairs, SLICES, make_temporary);
    let tpcb = clusters.compare("running pgbench", size.pairs, SLICES, transactions_per_second);
    let vacuum = clusters.compare("vacuuming all tables", size.pairs, 1, vacuum_all);

    let figures = vec![
        Figure::new("truncate_with_vs_without", truncate.ratio.median(), Goal::AtMost(1.10)),
        Figure::new("tpcb_tps_with_vs_without", tpcb.ratio.median(), Goal::AtLeast(0.99)),
        Figure::new("temp_tables_with_vs_without", temporary.ratio.median(), Goal::AtMost(1.03)),
        Figure::new(
            "vacuumdb_10k_tables_with_vs_without",
            vacuum.ratio.median(),
            Goal::AtMost(1.05),
        ),
    ];
    let mut text = String::from(
        "## What the ledger costs\n\n\
         Two clusters in memory, so that no waiting for a disk hides anything; one with the library\n\
         preloaded and the extension in the database.\n\n\
         | | median | minimum | maximum |\n|---|---|---|---|\n",
    );
    let works = [
        (format!("{TRUNCATIONS} x TRUNCATE of a small table with two indexes"), &truncate),
        (format!("{TEMPORARY_TABLES} x CREATE TEMP TABLE and DROP"), &temporary),
        (format!("`vacuumdb` of {} tables", size.tables), &vacuum),
        ("pgbench, TPC-B, transactions per second".to_owned(), &tpcb),
    ];
    for (name, pairs) in works {
        let _ = writeln!(text, "| {name}, without | {} |", pairs.without);
        let _ = writeln!(text, "| — with | {} |", pairs.with);
        let _ = writeln!(text, "| — with / without, of each pair | {} |", pairs.ratio);
    }
    Section { text, figures }
}

impl Clusters {
    /// Does the work on both in turn, in slices; each cluster comes first in every other one.
    fn compare(&self, what: &str, pairs: usize, slices: usize, work: Work) -> Pairs {
        let mut found = Pairs::default();
        for pair in 1..=pairs {
            println!("{what}, round {pair} of {pairs} ...");
            let (mut without, mut with) = (0.0, 0.0);
            for slice in 0..slices {
                if (pair + slice) % 2 == 1 {
                    without += work(&self.without);
                    with += work(&self.with);
                } else {
                    with += work(&self.with);
                    without += work(&self.without);
                }
            }
            found.without.add(without);
            found.with.add(with);
            found.ratio.add(with / without);
        }
        found
    }
}

fn truncate(cluster: &Cluster) -> f64 {
    let mut session = cluster.session(DATABASE);
    timed(|| (0..TRUNCATIONS / SLICES).for_each(|_| session.exec("TRUNCATE truncated")))
}

fn make_temporary(cluster: &Cluster) -> f64 {
    let mut session = cluster.session(DATABASE);
    timed(|| {
        for _ in 0..TEMPORARY_TABLES / SLICES {
            session.exec("CREATE TEMP TABLE scratch (id int, word text)");
            session.exec("DROP TABLE scratch");
        }
    })
}

fn vacuum_all(cluster: &Cluster) -> f64 {
    timed(|| {
        vacuumdb(cluster, DATABASE).run().assert_exit(0);
    })
}

fn transactions_per_second(cluster: &Cluster) -> f64 {
    let seconds = PGBENCH_SECONDS.to_string();
    let finished = pgbench(cluster, DATABASE).args(["-c", "2", "-T", &seconds]).run();
    finished.assert_exit(0);
    // "tps = 1234.567 (without initial connection time)"
    let line = finished.stdout.lines().find_map(|line| line.strip_prefix("tps = "));
    let number = line.and_then(|line| line.split(' ').next()?.parse().ok());
    let tps: f64 = number.unwrap_or_else(|| panic!("pgbench tells no tps\n{}", finished.scene()));
    // Slices are added up, and the sum is to be what a whole round has.
    tps / SLICES as f64
}

/// Seconds that some work takes.
fn timed(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}
