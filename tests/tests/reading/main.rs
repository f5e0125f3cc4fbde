//! Reading the ledger: what a bookmark knows, and what consumers may rely on.

mod bookmarks;
mod consumers;
mod pruning;
mod rights;

use postgres::error::DbError;
use stillpoint_tests::{Cluster, ClusterOptions, Session};

/// A cluster is one test's, so its first database is as good as a new one, and there at once.
const DATABASE: &str = "postgres";

/// Tables with one file each.
const TABLES: &str = "CREATE TABLE a (id int); CREATE TABLE b (id int); CREATE TABLE c (id int)";

/// A cluster that records, and two sessions of it.
struct Scene {
    session: Session,
    /// Reads, whatever the session is in the middle of.
    observer: Session,
    /// Ends last, so that the sessions are closed before the server is stopped.
    cluster: Cluster,
}

impl Scene {
    #[track_caller]
    fn new() -> Self {
        Self::with(ClusterOptions::default())
    }

    #[track_caller]
    fn with(options: ClusterOptions) -> Self {
        let cluster = options.preload().start();
        cluster.create_extension(DATABASE);
        let mut session = cluster.session(DATABASE);
        session.exec(TABLES);
        let observer = cluster.session(DATABASE);
        Self { session, observer, cluster }
    }

    /// Lets the server crash and recover, and connects anew.
    #[track_caller]
    fn crash(&mut self) {
        self.cluster.stop_immediate();
        self.cluster.start_server();
        self.session = self.cluster.session(DATABASE);
        self.observer = self.cluster.session(DATABASE);
    }

    #[track_caller]
    fn bookmark(&mut self) -> String {
        self.observer.text("SELECT stillpoint.bookmark()")
    }

    /// The names of the relations of which files are void since then, each once.
    #[track_caller]
    fn void_since(&mut self, bookmark: &str) -> Vec<String> {
        void(&mut self.observer, &format!("stillpoint.invalidated_since({})", literal(bookmark)))
    }

    /// The same, up to another bookmark.
    #[track_caller]
    fn void_between(&mut self, base: &str, upto: &str) -> Vec<String> {
        let (base, upto) = (literal(base), literal(upto));
        void(&mut self.observer, &format!("stillpoint.invalidated_between({base}, {upto})"))
    }

    /// The path of a relation's file.
    #[track_caller]
    fn path(&mut self, relation: &str) -> String {
        self.observer.text(&format!("SELECT pg_relation_filepath('{relation}')"))
    }

    /// The error that a statement of the session ends with.
    #[track_caller]
    fn refusal(&mut self, sql: &str) -> DbError {
        refusal(&self.cluster, &mut self.session, sql)
    }
}

#[track_caller]
fn void(session: &mut Session, function: &str) -> Vec<String> {
    session.texts(&format!(
        "SELECT DISTINCT relation_name FROM {function}
          WHERE relation >= 16384 AND relation_name !~ '^pg_toast' ORDER BY 1"
    ))
}

/// Whether a server process waits for what another holds, as a query.
fn waits_behind(waiter: i32, holder: i32) -> String {
    format!("SELECT {holder} = ANY (pg_blocking_pids({waiter}))")
}

/// A string as SQL.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[track_caller]
fn refusal(cluster: &Cluster, session: &mut Session, sql: &str) -> DbError {
    let Err(error) = session.try_exec(sql) else { panic!("not refused: {sql}") };
    let Some(error) = error.as_db_error().cloned() else { panic!("{error}") };
    cluster.allow_log(error.message());
    error
}
