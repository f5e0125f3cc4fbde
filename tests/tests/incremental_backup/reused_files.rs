//! A file comes to bear other bytes, and nothing about the file tells. A backup that leaves out a
//! part of the rule keeps the old bytes; one that follows it does not.

use std::fs::File;
use std::time::{Duration, SystemTime};

use stillpoint_tests::incremental::{Contents, Copier, Rule};
use stillpoint_tests::{Cluster, ClusterOptions, Session, set_next_oid};

/// A cluster's first database is as good as a new one.
const DATABASE: &str = "postgres";

/// Rows for two tables, which differ in every row and in no length. No column can be long: there
/// is no TOAST table whose number would matter, too.
const OLD: &str = "SELECT i, i::bigint, 1::bigint FROM generate_series(1, 20000) AS i";
const NEW: &str = "SELECT i, -i::bigint, 2::bigint FROM generate_series(1, 20000) AS i";

/// A cluster with a table `victim`, the number of whose file is about to be given out again, and
/// a table `twin` that is as long. Gives the number, too.
#[track_caller]
fn prepared() -> (Cluster, u32) {
    let options = ClusterOptions::default().preload();
    let mut cluster = options.setting("wal_keep_size = '2GB'").start();
    cluster.create_extension(DATABASE);
    let mut session = cluster.session(DATABASE);
    for (table, rows) in [("victim", OLD), ("twin", NEW)] {
        session.exec(&format!(
            "CREATE TABLE {table} (id int, a bigint, b bigint); INSERT INTO {table} {rows}"
        ));
    }
    session.exec(
        "CREATE TABLE rows AS TABLE twin; \
         CREATE TABLE large (id int, n int, place point, word text, body text); \
         INSERT INTO large SELECT i, i % 100, point(i % 100, i) FROM generate_series(1, 5000) AS i",
    );
    let number = u32::try_from(file_number(&mut session, "victim")).expect("a number of a file");
    drop(session);
    // To the ledger this is a gap. No bookmark has been taken yet.
    set_next_oid(&mut cluster, number - 20);
    (cluster, number)
}

/// A session of such a cluster.
struct Scene<'a> {
    cluster: &'a Cluster,
    session: Session,
    number: u32,
}

impl<'a> Scene<'a> {
    #[track_caller]
    fn new(cluster: &'a Cluster, number: u32) -> Self {
        let mut scene = Self { cluster, session: cluster.session(DATABASE), number };
        scene.disguise("victim");
        scene
    }

    /// Full backups, to be followed by others: by the whole rule and by another one.
    #[track_caller]
    fn copiers(&self, other: Rule) -> [Copier<'a>; 2] {
        [Rule::Ledger, other].map(|rule| {
            let mut copier = Copier::new(self.cluster, &[DATABASE], rule);
            let _ = copier.take(|_| {});
            copier
        })
    }

    /// Gives the file of a relation a time of its own, which it keeps as long as nobody changes
    /// it.
    #[track_caller]
    fn disguise(&mut self, relation: &str) {
        // Whoever reads a row first leaves a hint in it, if its transaction is on the disk.
        self.session.exec("CHECKPOINT");
        self.session.exec(&format!("SELECT count(*) FROM {relation}"));
        let path = self.session.text(&format!("SELECT pg_relation_filepath('{relation}')"));
        self.disguise_file(&path);
    }

    #[track_caller]
    fn disguise_file(&mut self, path: &str) {
        self.session.exec("CHECKPOINT");
        let file = File::options().write(true).open(self.cluster.data_directory().join(path));
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        file.and_then(|file| file.set_modified(time)).expect("the test may do as the server does");
    }

    /// Drops the table, and lets its number be the next that is given out.
    #[track_caller]
    fn free_the_number(&mut self) {
        self.session.exec("DROP TABLE victim");
        // The number is free when the catalog has no trace of it and the file is gone.
        self.session.exec("VACUUM pg_catalog.pg_class");
        self.session.exec("CHECKPOINT");
        while self.session.number("SELECT lo_create(0)") != i64::from(self.number) - 1 {}
    }

    /// Gives the number out to a relation.
    #[track_caller]
    fn reuse_by(&mut self, statement: &str, relation: &str) {
        self.free_the_number();
        self.session.exec(statement);
        assert_eq!(file_number(&mut self.session, relation), i64::from(self.number), "{statement}");
    }

    /// Takes a backup by each. That by the whole rule is right; gives what the other one, restored,
    /// has otherwise.
    #[track_caller]
    fn wrong_by(&self, copiers: &mut [Copier<'_>; 2]) -> Vec<String> {
        let [by_rule, by_less] = copiers.each_mut().map(|copier| {
            let taken = copier.take(|_| {});
            assert!(taken.kept > 0 || !copier.gaps().is_empty(), "nothing is kept: {taken:?}");
            let restored = copier.restore();
            let differences = Contents::of(self.cluster).differences(&restored);
            if !differences.is_empty() {
                restored.forget_log();
            }
            differences
        });
        assert!(by_rule.is_empty(), "{}", by_rule.join("\n"));
        by_less
    }
}

#[track_caller]
fn file_number(session: &mut Session, relation: &str) -> i64 {
    session.number(&format!("SELECT pg_relation_filenode('{relation}')"))
}

/// Gives the number of the victim's file to a relation that looks the same from outside.
#[track_caller]
fn assert_told_by_the_ledger_alone(statement: &str, relation: &str) {
    let (cluster, number) = prepared();
    let mut scene = Scene::new(&cluster, number);
    let mut copiers = scene.copiers(Rule::SizeAndTime);
    scene.reuse_by(statement, relation);
    scene.disguise(relation);
    let wrong = scene.wrong_by(&mut copiers);
    assert!(wrong.iter().any(|line| line.contains(relation)), "{statement}: {wrong:#?}");
}

#[test]
fn a_number_that_a_new_table_gets_is_told_by_the_ledger_alone() {
    assert_told_by_the_ledger_alone("CREATE TABLE next AS TABLE twin", "next");
}

#[test]
fn a_number_that_a_rewritten_table_gets_is_told_by_the_ledger_alone() {
    for statement in ["VACUUM FULL twin", "TRUNCATE twin; INSERT INTO twin TABLE rows"] {
        assert_told_by_the_ledger_alone(statement, "twin");
    }
}

/// An index of this kind is written page by page, and its pages get their LSN in memory only.
const UNTOLD_BY_PAGES: std::ops::RangeInclusive<u32> = 14..=16;

#[test]
fn a_number_that_an_index_gets_is_told_where_neither_time_nor_pages_tell() {
    let (cluster, number) = prepared();
    let mut scene = Scene::new(&cluster, number);
    let mut copiers = scene.copiers(Rule::SizeAndTime);
    // Nothing is disguised.
    scene.reuse_by("CREATE INDEX places ON large USING gist (place)", "places");
    // It reads the pages of the table as those of the index.
    let wrong = scene.wrong_by(&mut copiers);
    assert_eq!(!wrong.is_empty(), UNTOLD_BY_PAGES.contains(&cluster.major_version()), "{wrong:?}");
}

#[test]
fn a_number_is_given_again_while_nothing_is_recorded_and_nothing_is_relied_on() {
    let (cluster, number) = prepared();
    let mut scene = Scene::new(&cluster, number);
    let mut copiers = scene.copiers(Rule::LedgerUnasked);
    scene.session.exec("SET stillpoint.enabled = off");
    scene.reuse_by("CREATE TABLE next AS TABLE twin", "next");
    scene.session.exec("RESET stillpoint.enabled");
    scene.disguise("next");
    let wrong = scene.wrong_by(&mut copiers);
    assert!(wrong.iter().any(|line| line.contains("next")), "{wrong:#?}");
    cluster.allow_log("the ledger has a gap since the bookmark was taken");
}

#[test]
fn a_file_whose_relation_was_not_committed_at_the_bookmark_is_not_relied_on() {
    let (cluster, number) = prepared();
    let mut scene = Scene::new(&cluster, number);
    let mut maker = cluster.session(DATABASE);
    maker.exec("BEGIN; CREATE TABLE late (id int, a bigint, b bigint)");
    maker.exec(&format!("INSERT INTO late {OLD}"));
    let path = maker.text("SELECT pg_relation_filepath('late')");
    scene.disguise_file(&path);
    let mut copiers = scene.copiers(Rule::LedgerWithoutList);
    // In the same file: a rollback takes it away in any case.
    maker.exec(&format!("TRUNCATE late; INSERT INTO late {NEW}"));
    maker.exec("COMMIT");
    assert_eq!(maker.text("SELECT pg_relation_filepath('late')"), path);
    scene.disguise("late");
    let wrong = scene.wrong_by(&mut copiers);
    assert!(wrong.iter().any(|line| line.contains("late")), "{wrong:#?}");
}
