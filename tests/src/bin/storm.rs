//! `make storm`: minutes of dumps under a storm of DDL, each restored and checked.
//!
//! `STORM_SECONDS` (300) says how long, `STORM_SEED` brings a run back as far as the scheduler
//! lets it.

use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use stillpoint_tests::figure::{self, Figure, Goal};
use stillpoint_tests::oracle::Weather;
use stillpoint_tests::random::Random;
use stillpoint_tests::storm;

fn main() -> ExitCode {
    let duration = Duration::from_secs(setting("STORM_SECONDS").unwrap_or(300));
    let weather = Weather::usual(setting("STORM_SEED").unwrap_or_else(Random::seed));
    println!(
        "storm: {} s, {} sessions on {} tables, seed {}",
        duration.as_secs(),
        weather.sessions,
        weather.tables,
        weather.seed
    );
    let (tallies, deeds) = storm::run(duration, weather);
    println!("{deeds} transactions of DDL were committed\n\n{}", storm::table(&tallies));
    for finding in tallies.iter().filter(|t| t.tool.is_ours()).flat_map(|t| &t.findings) {
        println!("{finding}\n");
    }

    let (ours, theirs): (Vec<_>, Vec<_>) = tallies.iter().partition(|t| t.tool.is_ours());
    let sum = |of: fn(&storm::Tally) -> u32, tallies: &[&storm::Tally]| -> f64 {
        tallies.iter().map(|tally| f64::from(of(tally))).sum()
    };
    let dumps = sum(|t| t.dumps, &ours).max(1.0);
    // Without conflicts nothing is proven, and a storm that pg_dump rides out is none.
    let goals = [
        Figure::new(
            "storm_conflict_percent",
            100.0 * sum(|t| t.conflicts, &ours) / dumps,
            Goal::AtLeast(80.0),
        ),
        Figure::new("storm_wrong", sum(|t| t.wrong, &ours), Goal::AtMost(0.0)),
        Figure::new(
            "storm_pg_dump_not_right",
            sum(|t| t.wrong + t.failed, &theirs),
            Goal::AtLeast(1.0),
        ),
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
