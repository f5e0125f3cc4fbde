//! Dumps under a storm of DDL: the short form of `make storm`.

use std::time::Duration;

use stillpoint_tests::oracle::Weather;
use stillpoint_tests::random::Random;
use stillpoint_tests::storm;

#[test]
fn every_dump_in_a_storm_holds_exactly_what_the_oracle_promises() {
    let weather = Weather::usual(Random::seed());
    println!("{weather:?}");
    let (tallies, _) = storm::run(Duration::from_secs(20), weather);
    let table = storm::table(&tallies);
    println!("{table}");
    for tally in tallies.iter().filter(|tally| tally.tool.is_ours()) {
        assert_eq!(tally.wrong, 0, "{table}\n{}", tally.findings.join("\n\n"));
        assert!(tally.right > 0, "no dump succeeded\n{table}\n{}", tally.findings.join("\n\n"));
        assert!(tally.conflicts * 2 > tally.dumps, "too calm to prove anything\n{table}");
    }
}
