//! `make fuzz-ledger`: random statements, the ledger held against the truth after each
//! transaction; then the same against libraries with something missing, which must be noticed.
//!
//! `FUZZ_STATEMENTS` (10000) says how much, `FUZZ_SEED` brings the choices of a run back. The
//! library must have been built with the feature `mutants`.

use std::process::ExitCode;
use std::str::FromStr;

use stillpoint_tests::figure::{self, Figure, Goal};
use stillpoint_tests::ledger::fuzz::{self, Outcome, Plan};
use stillpoint_tests::random::Random;

/// What a library lacks that the fuzz must tell from a good one: the value of
/// `stillpoint.mutant`.
const MUTANTS: [&str; 3] = ["no_callback", "no_truncate_hook", "no_vacuum_hook"];

fn main() -> ExitCode {
    let seed = setting("FUZZ_SEED").unwrap_or_else(Random::seed);
    let statements = setting("FUZZ_STATEMENTS").unwrap_or(10_000);
    let plan = Plan { statements, lanes: 4, seed, stop_early: false };
    println!("fuzz_ledger: seed {seed}, {statements} statements in {} sessions", plan.lanes);

    let outcome = fuzz::run(plan, &[]);
    print(&outcome);
    for finding in outcome.findings.iter().take(20) {
        println!("\n{finding}");
    }
    let found = MUTANTS.into_iter().filter(|mutant| is_found(plan, mutant)).count();
    println!();
    let figures = [
        Figure::new("fuzz_ledger_findings", outcome.findings.len() as f64, Goal::AtMost(0.0)),
        Figure::new("fuzz_ledger_mutants_found", found as f64, Goal::AtLeast(MUTANTS.len() as f64)),
    ];
    if figure::print(&figures) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether the fuzz notices what the mutant lacks.
fn is_found(plan: Plan, mutant: &str) -> bool {
    let plan = Plan { stop_early: true, ..plan };
    let outcome = fuzz::run(plan, &[&format!("stillpoint.mutant = {mutant}")]);
    println!("\nmutant {mutant}:");
    print(&outcome);
    let first = outcome.findings.first();
    println!("{}", first.map_or("NOT FOUND", String::as_str));
    first.is_some()
}

fn print(outcome: &Outcome) {
    println!(
        "{} statements done, {} refused, {} transactions judged, {} replacements confirmed, \
         {} stopped after their record; {} findings",
        outcome.done,
        outcome.refused,
        outcome.judged,
        outcome.confirmed.len(),
        outcome.held,
        outcome.findings.len()
    );
}

fn setting<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(_) => panic!("{name} is no number: \"{text}\""),
    }
}
