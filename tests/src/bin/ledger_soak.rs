//! `make ledger-soak`: consumers of the ledger among random DDL, kills and crashes, for minutes.
//!
//! `SOAK_MINUTES` (30) says how long, `SOAK_SEED` brings a run back as far as the scheduler lets
//! it.

use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use stillpoint_tests::figure::{self, Figure, Goal};
use stillpoint_tests::ledger::soak;
use stillpoint_tests::random::Random;

fn main() -> ExitCode {
    let minutes: f64 = setting("SOAK_MINUTES").unwrap_or(30.0);
    let seed = setting("SOAK_SEED").unwrap_or_else(Random::seed);
    println!("ledger_soak: {minutes} minutes, seed {seed}");
    let outcome = soak::run(Duration::from_secs_f64(minutes * 60.0), seed);
    for finding in &outcome.findings {
        println!("{finding}\n");
    }
    println!(
        "{} statements; {} backups begun, {} ended, {} calls refused; {} restarts, {} crashes, \
         {} sessions killed\n{} files changed, {} told, {} of them surplus, {} missed",
        outcome.statements,
        outcome.begun,
        outcome.ended,
        outcome.refused,
        outcome.restarts,
        outcome.crashes,
        outcome.kills,
        outcome.changes,
        outcome.told,
        outcome.surplus,
        outcome.missed
    );
    let goals = [
        Figure::new("ledger_soak_missed", outcome.missed as f64, Goal::AtMost(0.0)),
        Figure::new("ledger_soak_findings", outcome.findings.len() as f64, Goal::AtMost(0.0)),
        Figure::new("ledger_soak_changes", outcome.changes as f64, Goal::AtLeast(1.0)),
        Figure::new("ledger_soak_crashes", outcome.crashes as f64, Goal::AtLeast(1.0)),
    ];
    if figure::print(&goals) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn setting<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(_) => panic!("{name} is no number: \"{text}\""),
    }
}
