//! `make bench`: what a verified dump costs beside `pg_dump`, what the ledger costs those who do not
//! ask for it, and what those who do.
//!
//! Writes docs/benchmarks.md. `BENCH_TABLES` (10000) and `BENCH_PAIRS` (5) make it shorter;
//! `BENCH_ONLY` (`dump`, `ledger` or `reading`) measures one part of it.

mod dump;
mod ledger;
mod reading;

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;
use std::thread::available_parallelism;

use stillpoint_tests::Cluster;
use stillpoint_tests::figure::{self, Figure};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmarks.md");

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    /// Small tables in a database.
    tables: usize,
    /// Runs of each of the things that are compared.
    pairs: usize,
}

impl Size {
    const WHOLE: Self = Self { tables: 10_000, pairs: 5 };
}

/// A part of the page.
struct Section {
    text: String,
    figures: Vec<Figure>,
}

/// A part's name and what measures it.
type Part = (&'static str, fn(Size) -> Section);

const PARTS: [Part; 3] = [("dump", dump::run), ("ledger", ledger::run), ("reading", reading::run)];

fn main() -> ExitCode {
    let size = Size {
        tables: setting("BENCH_TABLES", Size::WHOLE.tables),
        pairs: setting("BENCH_PAIRS", Size::WHOLE.pairs),
    };
    let only = std::env::var("BENCH_ONLY").unwrap_or_default();
    assert!(
        only.is_empty() || PARTS.iter().any(|(name, _)| *name == only),
        "BENCH_ONLY names no part: \"{only}\""
    );
    let sections: Vec<Section> = PARTS
        .iter()
        .filter(|(name, _)| only.is_empty() || *name == only)
        .map(|(_, run)| run(size))
        .collect();

    let mut page = introduction(size);
    let mut figures = Vec::new();
    for section in sections {
        page.push_str(&section.text);
        page.push('\n');
        figures.extend(section.figures);
    }
    println!("{page}");
    page.push_str("## Figures\n\n```text\n");
    for figure in &figures {
        let _ = writeln!(page, "{figure}");
    }
    page.push_str("```\n");
    if size == Size::WHOLE && only.is_empty() {
        fs::write(PAGE, &page).expect("docs/benchmarks.md can be written");
    }
    if figure::print(&figures) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn introduction(size: Size) -> String {
    let cluster = Cluster::start();
    let mut session = cluster.session("postgres");
    let version = session.text("SHOW server_version");
    let date = session.text("SELECT current_date");
    let cores = available_parallelism().map_or(1, usize::from);
    format!(
        "# Benchmarks\n\n\
         Written by `make bench` on {date}: PostgreSQL {}, {cores} cores, release build.\n\
         Server and client on one machine. Every tool syncs what it wrote. What is compared takes\n\
         turns, {} rounds; seconds as median, minimum and maximum.\n\n",
        version.split(' ').next().unwrap_or_default(),
        size.pairs
    )
}

fn setting(name: &str, default: usize) -> usize {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is no number: \"{text}\"")),
        Err(_) => default,
    }
}
