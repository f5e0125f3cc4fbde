//! `make bench`: what a verified dump costs beside `pg_dump`, what the ledger costs those who do not
//! ask for it, and what those who do.
//!
//! Writes docs/benchmarks.md. `BENCH_ONLY` (`dump`, `ledger` or `reading`) measures one part of it and
//! leaves the others in the page as they are. `BENCH_TABLES` (10000) and `BENCH_PAIRS` (5) make it
//! shorter; then nothing is written.

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
    let machine = machine();
    let old = fs::read_to_string(PAGE).unwrap_or_default();
    let mut page = format!("{INTRODUCTION}\n");
    let mut figures = Vec::new();
    for (name, run) in PARTS {
        let section = if only.is_empty() || name == only {
            let section = run(size);
            println!("{}", section.text);
            let text = in_page(&section, &machine, size);
            figures.extend(section.figures);
            text
        } else {
            measured_before(&old, name).to_owned()
        };
        let _ = write!(page, "{}\n{section}", mark(name));
    }
    if size == Size::WHOLE {
        fs::write(PAGE, page.trim_end().to_owned() + "\n").expect("docs/benchmarks.md is ours");
    }
    if figure::print(&figures) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The page's head.
const INTRODUCTION: &str = "\
# Benchmarks

Written by `make bench`, each part when it was measured last. Server and client on one machine,
release build. Every tool syncs what it wrote. What is compared takes turns; values as median, minimum
and maximum.
";

/// Stands before a part of the page, so that it can be written anew alone.
fn mark(part: &str) -> String {
    format!("<!-- {part} -->")
}

/// A part of the page as it is, up to the next one.
fn measured_before<'a>(page: &'a str, part: &str) -> &'a str {
    let found = page.split_once(&mark(part)).map_or("", |(_, rest)| rest);
    found.split("<!-- ").next().unwrap_or_default().trim_start_matches('\n')
}

fn in_page(section: &Section, machine: &str, size: Size) -> String {
    let mut text = format!("{}\n", section.text.trim_end());
    let _ = writeln!(text, "\nMeasured {machine}, {} rounds:\n\n```text", size.pairs);
    for figure in &section.figures {
        let _ = writeln!(text, "{figure}");
    }
    text + "```\n\n"
}

/// When and where this runs.
fn machine() -> String {
    let cluster = Cluster::start();
    let mut session = cluster.session("postgres");
    let version = session.text("SHOW server_version");
    let date = session.text("SELECT current_date");
    let cores = available_parallelism().map_or(1, usize::from);
    format!(
        "on {date}, PostgreSQL {}, {cores} cores",
        version.split(' ').next().unwrap_or_default()
    )
}

fn setting(name: &str, default: usize) -> usize {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is no number: \"{text}\"")),
        Err(_) => default,
    }
}
