//! The command `stillpoint ledger`: what it prints, what it refuses, and how it runs a backup.

mod backups;
mod listings;
mod refusals;

use stillpoint_tests::{Cluster, Finished, Session, Stillpoint};

/// A cluster is one test's, so its first database is as good as a new one, and there at once.
const DATABASE: &str = "postgres";

/// A cluster that records, with a table of one file, and a session of it.
struct Scene {
    session: Session,
    /// Ends last, so that the session is closed before the server is stopped.
    cluster: Cluster,
}

impl Scene {
    #[track_caller]
    fn new() -> Self {
        let cluster = Cluster::preloaded();
        cluster.create_extension(DATABASE);
        let mut session = cluster.session(DATABASE);
        session.exec("CREATE TABLE t AS SELECT generate_series(1, 10) AS id");
        Self { session, cluster }
    }

    fn ledger(&self, action: &str) -> Stillpoint {
        Stillpoint::ledger(&self.cluster, DATABASE, action)
    }

    /// What an action prints that succeeds.
    #[track_caller]
    fn told(&self, action: &str, arguments: &[&str]) -> Finished {
        let finished = self.ledger(action).args(arguments).run();
        finished.assert_exit(0);
        finished
    }

    #[track_caller]
    fn bookmark(&self) -> String {
        self.told("bookmark", &[]).stdout.trim_end().to_owned()
    }

    /// A registered consumer that has ended a backup.
    #[track_caller]
    fn consumer_with_backup(&self, name: &str) -> String {
        self.told("register", &[name]);
        let begun = self.told("begin", &[name, "--format", "json"]).report();
        let bookmark = begun["bookmark"].as_str().expect("a bookmark").to_owned();
        self.told("end", &[name, &bookmark]);
        bookmark
    }

    /// The path of a relation's file.
    #[track_caller]
    fn path(&mut self, relation: &str) -> String {
        self.session.text(&format!("SELECT pg_relation_filepath('{relation}')"))
    }

    /// The base of a consumer's next backup.
    #[track_caller]
    fn base_of(&mut self, consumer: &str) -> Option<String> {
        let query = format!("SELECT bookmark FROM stillpoint.consumers WHERE name = '{consumer}'");
        self.session.rows(&query).remove(0).remove(0)
    }
}

/// Fails unless the run ended with one line on standard error.
#[track_caller]
fn assert_one_line(finished: &Finished, line: &str) {
    assert_eq!(finished.stderr, format!("stillpoint: {line}\n"), "{}", finished.scene());
}

/// Fails unless the run failed with this error and hint.
#[track_caller]
fn assert_refused(finished: &Finished, code: i32, error: &str, hint: &str) {
    finished.assert_exit(code);
    let lines = format!("error: {error}\nstillpoint: hint: {hint}");
    assert_one_line(finished, &lines);
    assert_eq!(finished.stdout, "", "{}", finished.scene());
}
