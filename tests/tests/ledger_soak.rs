//! Consumers of the ledger among DDL, kills and crashes: the short form of `make ledger-soak`.

use std::time::Duration;

use stillpoint_tests::ledger::soak;
use stillpoint_tests::random::Random;

#[test]
fn consumers_are_told_of_every_change_whatever_is_killed_meanwhile() {
    let seed = Random::seed();
    println!("seed {seed}");
    let outcome = soak::run(Duration::from_secs(20), seed);
    println!("{outcome:#?}");
    assert!(outcome.findings.is_empty(), "seed {seed}\n{}", outcome.findings.join("\n\n"));
    assert!(outcome.changes > 100 && outcome.crashes > 0, "too little was done: {outcome:?}");
}
