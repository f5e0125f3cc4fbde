//! Runs every race case many times in random order.
//!
//! Usage: `race_soak [--rounds N] [--seed N] [--jobs N] [--case PART-OF-A-NAME]`. A round runs
//! every case with the extension and without, on as many clusters at a time as there are jobs.
//! The seed brings the order back.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::slice::Iter;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use stillpoint_tests::Cluster;
use stillpoint_tests::race::{Case, Check, cases, run};
use stillpoint_tests::random::Random;

struct Options {
    rounds: u32,
    seed: u64,
    jobs: usize,
    part: String,
}

fn main() -> ExitCode {
    let Some(options) = options(std::env::args().skip(1)) else {
        eprintln!("usage: race_soak [--rounds N] [--seed N] [--jobs N] [--case PART-OF-A-NAME]");
        return ExitCode::from(64);
    };
    println!("race_soak: seed {}, {} rounds", options.seed, options.rounds);
    let (runs, failures) = soak(&options);
    println!("race_soak: seed {}, {runs} runs, {} failures", options.seed, failures.len());
    for failure in &failures {
        println!("failed: {failure}");
    }
    println!("figure race_soak_failures {} goal = 0", failures.len());
    if failures.is_empty() && runs > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let jobs = thread::available_parallelism().map_or(1, NonZero::get);
    let mut options = Options { rounds: 20, seed: Random::seed(), jobs, part: String::new() };
    while let Some(argument) = arguments.next() {
        let value = arguments.next()?;
        match argument.as_str() {
            "--rounds" => options.rounds = value.parse().ok()?,
            "--seed" => options.seed = value.parse().ok()?,
            "--jobs" => options.jobs = value.parse().ok().filter(|jobs| *jobs > 0)?,
            "--case" => options.part = value,
            _ => return None,
        }
    }
    Some(options)
}

/// The number of runs, and the names of those that failed.
fn soak(options: &Options) -> (usize, Vec<String>) {
    let mut races: Vec<(&Case, Check)> = cases::FAMILIES
        .iter()
        .flat_map(|family| family.1)
        .filter(|case| case.name.contains(&options.part))
        .flat_map(|case| [(case, Check::Extension), (case, Check::Plain)])
        .collect();
    let mut random = Random::new(options.seed);
    let mut clusters: Vec<_> = (0..options.jobs).map(|_| Cluster::preloaded()).collect();
    let mut runs = 0;
    let mut failures = Vec::new();
    for round in 1..=options.rounds {
        shuffle(&mut races, &mut random);
        let started = Instant::now();
        let queue = Mutex::new(races.iter());
        let failed: Vec<String> = thread::scope(|scope| {
            let lanes: Vec<_> = clusters
                .iter_mut()
                .map(|cluster| scope.spawn(|| run_lane(cluster, &queue)))
                .collect();
            lanes.into_iter().flat_map(|lane| lane.join().expect("failures are caught")).collect()
        });
        runs += races.len();
        let seconds = started.elapsed().as_secs_f64();
        println!("round {round}: {} runs, {} failed, {seconds:.1} s", races.len(), failed.len());
        failures.extend(failed.into_iter().map(|name| format!("round {round}: {name}")));
    }
    (runs, failures)
}

/// Runs races from the queue until it is empty, and names those that failed.
fn run_lane(cluster: &mut Cluster, queue: &Mutex<Iter<'_, (&Case, Check)>>) -> Vec<String> {
    let mut failed = Vec::new();
    loop {
        let next = queue.lock().expect("nobody panics with the queue").next();
        let Some((case, check)) = next else { return failed };
        if catch_unwind(AssertUnwindSafe(|| run(cluster, case, *check))).is_err() {
            failed.push(format!("{} ({})", case.name, check.as_str()));
            // The failed run's sessions, databases and log entries are none of the next's.
            cluster.forget_log();
            *cluster = Cluster::preloaded();
        }
    }
}

fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for end in (1..items.len()).rev() {
        let other = random.below(u32::try_from(end).unwrap_or(u32::MAX).saturating_add(1));
        items.swap(end, other as usize);
    }
}
