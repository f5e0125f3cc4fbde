//! A full backup and incremental ones on top of it, while statements of all kinds run.

use stillpoint_tests::incremental::{Contents, Copier, Moment, Rule, Tally};
use stillpoint_tests::random::Random;
use stillpoint_tests::workload::{self, Worker};
use stillpoint_tests::{Cluster, ClusterOptions, Session};

/// Databases with a ledger.
const WITH_LEDGER: [&str; 2] = ["app", "shop"];

/// And one without.
const WITHOUT: &str = "plain";

/// Statements that need the catalogs or the ledger for themselves, when nobody else is at work.
const UPKEEP: [&str; 10] = [
    "VACUUM FULL pg_catalog.pg_class",
    "VACUUM FULL pg_catalog.pg_description",
    "REINDEX TABLE pg_catalog.pg_depend",
    "REINDEX TABLE CONCURRENTLY app.elders",
    "CLUSTER",
    "VACUUM FULL stillpoint.invalidation",
    "VACUUM FULL stillpoint.bookmark",
    "REINDEX TABLE stillpoint.invalidation",
    "VACUUM stillpoint.consumer",
    "SELECT stillpoint.prune()",
];

/// After these nothing of their database is relied on, so one database is spared.
const UPKEEP_OF_ALL: [&str; 2] = ["VACUUM", "VACUUM FREEZE"];

/// Sessions at work in several databases.
struct Traffic {
    workers: Vec<Worker>,
    upkeep: Vec<Session>,
    random: Random,
}

impl Traffic {
    fn begin(cluster: &Cluster, seed: u64) -> Self {
        workload::prepare(cluster);
        let mut random = Random::new(seed);
        let mut workers = Vec::new();
        for database in WITH_LEDGER.into_iter().chain([WITHOUT]) {
            cluster.create_database(database);
            if database != WITHOUT {
                cluster.create_extension(database);
            }
            let mut session = cluster.session(database);
            session.exec(
                "CREATE SCHEMA app; \
                 CREATE TABLE app.elders (id int PRIMARY KEY, word text); \
                 INSERT INTO app.elders SELECT i, md5(i::text) FROM generate_series(1, 5000) AS i",
            );
            for number in 0..2 {
                let name = format!("{database}_{number}");
                workers.push(Worker::new(cluster.session(database), &name, random.next()));
            }
        }
        let upkeep = WITH_LEDGER.map(|database| cluster.session(database)).into();
        Self { workers, upkeep, random }
    }

    /// Some statements of some sessions.
    fn go_on(&mut self) {
        for _ in 0..1 + self.random.below(6) {
            let worker = self.random.below(self.workers.len() as u32) as usize;
            step(&mut self.workers[worker]);
        }
        if self.random.below(8) == 0 {
            self.settle();
            let session = self.random.below(self.upkeep.len() as u32) as usize;
            let all = &UPKEEP_OF_ALL[..if session == 0 { 0 } else { UPKEEP_OF_ALL.len() }];
            let statements = [&UPKEEP[..], all].concat();
            let statement = self.random.below(statements.len() as u32) as usize;
            self.upkeep[session].exec(statements[statement]);
        }
    }

    /// Ends all transactions.
    fn settle(&mut self) {
        for worker in &mut self.workers {
            if let Err(error) = worker.settle() {
                panic!("a transaction could not be ended: {error:?}");
            }
        }
    }
}

fn step(worker: &mut Worker) {
    if let Err(error) = worker.step() {
        panic!("a statement failed that should not: {error:?}");
    }
}

/// Takes a chain of backups amid traffic, and restores each.
fn run_chain(options: ClusterOptions, seed: u64) {
    const BACKUPS: u32 = 4;

    println!("seed {seed}");
    let cluster = options.preload().setting("wal_keep_size = '2GB'").start();
    let mut traffic = Traffic::begin(&cluster, seed);
    let mut copier = Copier::new(&cluster, &WITH_LEDGER, Rule::Ledger);
    let mut total = Tally::default();
    for number in 1..=BACKUPS {
        let tally = copier.take(|moment| {
            traffic.go_on();
            // What the backup holds is what is there in the end: nothing may be in the air.
            if moment == Moment::ReadAgain {
                traffic.settle();
            }
        });
        println!("backup {number}: {tally:?}");
        assert!(number == 1 || copier.gaps().is_empty(), "seed {seed}: {:?}", copier.gaps());
        let contents = Contents::of(&cluster);
        let restored = copier.restore();
        let differences = contents.differences(&restored);
        assert!(differences.is_empty(), "seed {seed}, backup {number}\n{}", differences.join("\n"));
        total.kept += tally.kept;
        total.changed += tally.changed;
        total.kept_pages += tally.kept_pages;
        total.named_anew += tally.named_anew;
        for _ in 0..20 {
            traffic.go_on();
        }
        cluster.session("postgres").exec("CHECKPOINT");
    }
    for database in WITH_LEDGER.into_iter().chain([WITHOUT]) {
        cluster.allow_log(&format!("test {database} ERROR:  "));
        cluster.allow_log(&format!("test {database} WARNING:  "));
    }
    let proves = total.kept > 0 && total.changed > 0 && total.kept_pages > 0;
    assert!(proves && total.named_anew > 0, "too little was relied on: {total:?}");
}

#[test]
fn every_backup_of_a_chain_restores_what_was_there_although_statements_of_all_kinds_ran() {
    run_chain(ClusterOptions::default(), Random::seed());
}

#[test]
fn a_chain_is_as_good_if_vacuum_in_place_is_not_recorded() {
    let options = ClusterOptions::default().setting("stillpoint.record_vacuum = rewrites");
    run_chain(options, Random::seed());
}
