//! Random statements: the short form of `make fuzz-ledger`.

use stillpoint_tests::ledger::fuzz::{self, Plan};
use stillpoint_tests::random::Random;

#[test]
fn random_statements_are_told_without_a_miss_or_a_surplus() {
    let plan = Plan { statements: 800, lanes: 3, seed: Random::seed(), stop_early: true };
    println!("{plan:?}");
    let outcome = fuzz::run(plan, &[]);
    let findings = outcome.findings.join("\n\n");
    assert!(outcome.findings.is_empty(), "{plan:?}\n{findings}");
    assert!(outcome.confirmed.len() > 100 && outcome.held > 0, "too little was done: {outcome:?}");
}
