//! A connection to a cluster, for tests: text in, text out, and a failure shows the statement.

use std::fmt::Write as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};

use postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::DEADLINE;

/// A connection to a database.
pub struct Session {
    client: Client,
    pid: i32,
}

impl Session {
    pub(crate) fn new(client: Client) -> Result<Self, postgres::Error> {
        let mut session = Self { client, pid: 0 };
        let pid = session.try_rows("SELECT pg_catalog.pg_backend_pid()")?.remove(0).remove(0);
        session.pid = pid.and_then(|pid| pid.parse().ok()).expect("a backend's pid is a number");
        Ok(session)
    }

    /// The process id of the session's backend.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The connection itself, for what the helpers here do not do.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Runs statements in one message, hence in one implicit transaction if they hold no
    /// `BEGIN`. What may not run in a transaction block needs a call of its own.
    #[track_caller]
    pub fn exec(&mut self, sql: &str) {
        if let Err(error) = self.client.batch_execute(sql) {
            panic!("statement failed: {sql}\n{}", describe(&error));
        }
    }

    /// As [`exec`](Self::exec), for statements that may fail.
    pub fn try_exec(&mut self, sql: &str) -> Result<(), postgres::Error> {
        self.client.batch_execute(sql)
    }

    /// All rows of a query as text; `None` is NULL.
    #[track_caller]
    pub fn rows(&mut self, sql: &str) -> Vec<Vec<Option<String>>> {
        match self.try_rows(sql) {
            Ok(rows) => rows,
            Err(error) => panic!("query failed: {sql}\n{}", describe(&error)),
        }
    }

    /// As [`rows`](Self::rows), for queries that may fail.
    pub fn try_rows(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, postgres::Error> {
        let mut rows = Vec::new();
        for message in self.client.simple_query(sql)? {
            if let SimpleQueryMessage::Row(row) = message {
                rows.push((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect());
            }
        }
        Ok(rows)
    }

    /// The one value of a query of one row and one column, as text; NULL is an error.
    #[track_caller]
    pub fn text(&mut self, sql: &str) -> String {
        let mut rows = self.rows(sql);
        assert!(rows.len() == 1 && rows[0].len() == 1, "not one value: {sql}\n{rows:?}");
        match rows.remove(0).remove(0) {
            Some(text) => text,
            None => panic!("NULL: {sql}"),
        }
    }

    /// The first column of a query, as text; NULL is an error.
    #[track_caller]
    pub fn texts(&mut self, sql: &str) -> Vec<String> {
        let rows = self.rows(sql);
        rows.into_iter()
            .map(|mut row| row.swap_remove(0).unwrap_or_else(|| panic!("NULL: {sql}")))
            .collect()
    }

    /// The one value of a query, a number.
    #[track_caller]
    pub fn number(&mut self, sql: &str) -> i64 {
        let text = self.text(sql);
        text.parse().unwrap_or_else(|_| panic!("not a number: {sql}\n{text}"))
    }

    /// The one value of a query, a boolean.
    #[track_caller]
    pub fn yes(&mut self, sql: &str) -> bool {
        self.text(sql) == "t"
    }

    /// Runs a statement in a thread, for one that will have to wait. The session comes back
    /// with [`Background::finish`].
    #[must_use]
    pub fn start(self, sql: &str) -> Background {
        let pid = self.pid;
        let sql = sql.to_owned();
        let (sender, receiver) = channel();
        let statement = sql.clone();
        let thread = thread::spawn(move || {
            let mut session = self;
            let result = session.client.batch_execute(&sql);
            // Nobody listens any more if the test has failed meanwhile.
            let _ = sender.send((session, result));
        });
        Background { pid, statement, thread, receiver }
    }

    /// What every client session of the server is doing, and behind whom it waits.
    pub(crate) fn activity(&mut self) -> String {
        let rows = self.rows(
            "SELECT pid, application_name, datname, state, wait_event_type, wait_event, \
             pg_catalog.pg_blocking_pids(pid), pg_catalog.left(query, 120) \
             FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend' ORDER BY pid",
        );
        let mut text =
            String::from("sessions (pid, name, database, state, wait, blocked by, query):\n");
        for row in rows {
            let row: Vec<_> = row.iter().map(|value| value.as_deref().unwrap_or("-")).collect();
            let _ = writeln!(text, "  {}", row.join(" | "));
        }
        text
    }
}

/// Where and as whom to connect.
#[derive(Clone, Debug)]
pub struct Connector(Config);

impl Connector {
    pub(crate) fn new(config: Config) -> Self {
        Self(config)
    }

    /// As that role.
    #[must_use]
    pub fn role(mut self, role: &str) -> Self {
        self.0.user(role);
        self
    }

    /// Connects, if the server lets it.
    pub fn connect(&self) -> Result<Session, postgres::Error> {
        Session::new(self.0.connect(NoTls)?)
    }
}

/// A statement that runs in a thread.
pub struct Background {
    pid: i32,
    statement: String,
    thread: JoinHandle<()>,
    receiver: Receiver<(Session, Result<(), postgres::Error>)>,
}

impl Background {
    /// The process id of the statement's backend.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether the statement has ended, well or not.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the statement's end, within [`DEADLINE`], and gives its session back. A
    /// statement that failed fails the test.
    #[track_caller]
    #[must_use = "dropping the session closes it"]
    pub fn finish(self) -> Session {
        let statement = self.statement.clone();
        let (session, result) = self.result();
        match result {
            Ok(()) => session,
            Err(error) => panic!("statement failed: {statement}\n{}", describe(&error)),
        }
    }

    /// As [`finish`](Self::finish), for statements that may fail.
    #[track_caller]
    pub fn result(self) -> (Session, Result<(), postgres::Error>) {
        match self.receiver.recv_timeout(DEADLINE) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => {
                panic!("not done within {DEADLINE:?}: {}", self.statement)
            }
            Err(RecvTimeoutError::Disconnected) => panic!("thread died: {}", self.statement),
        }
    }
}

/// The server's message with everything it says about it; the crate's own text is "db error".
pub(crate) fn describe(error: &postgres::Error) -> String {
    let Some(db) = error.as_db_error() else { return error.to_string() };
    let mut text = format!("{}: {} (SQLSTATE {})", db.severity(), db.message(), db.code().code());
    for (label, part) in [("DETAIL", db.detail()), ("HINT", db.hint()), ("CONTEXT", db.where_())] {
        if let Some(part) = part {
            let _ = write!(text, "\n{label}: {part}");
        }
    }
    text
}
