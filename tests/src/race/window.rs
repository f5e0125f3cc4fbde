//! Stopping a dump between its snapshot and its locks, without a hook in the dump.
//!
//! The database has an empty table, [`BARRIER`], made before every other: with the lowest OID
//! and no pages it is the first that `pg_dump` locks and the first that a single worker locks.
//! Whoever holds ACCESS EXCLUSIVE on it stops both. The lock's queue is first come, first
//! served, and that gives the order:
//!
//! ```text
//! X holds the barrier           the dump takes its snapshot; pg_dump waits for X
//!     -- window before the DDL step --
//! Y asks, behind pg_dump; X ends   pg_dump reads everything and ends; Y has the barrier
//!                                  before any worker can ask; the worker waits for Y
//!     -- window before the locks --
//! X asks, behind the worker; Y ends    the worker locks, checks; if it rolls back, X has the
//!                                      barrier before the next attempt's pg_dump can ask
//! ```
//!
//! A worker that exports already holds its lock, and a session that holds a lock is not queued
//! for it again: X waits without holding up the export.

use crate::wait::poll;
use crate::{Background, Cluster, DEADLINE, Finished, Program, Running, Session, wait_until};

/// The table that stops the dump; to be created before every other table of its database.
pub const BARRIER: &str = "public.barrier";

const TAKE: &str = "BEGIN; LOCK TABLE public.barrier IN ACCESS EXCLUSIVE MODE";

/// A moment between the snapshot and the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The snapshot is taken and the relations are resolved; `pg_dump` has read nothing.
    BeforeDdl,
    /// `pg_dump` has ended; no table is locked.
    BeforeLocks,
}

/// Where a dump has been stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The attempt, from 1.
    pub attempt: usize,
    /// The window in it.
    pub window: Window,
}

/// How the dump goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// To the next window, if there is one.
    NextWindow,
    /// To its end.
    End,
}

/// Starts a dump of `database` and calls `at` in each of its windows, until it says
/// [`Then::End`] or the dump ends.
#[track_caller]
pub fn drive(
    cluster: &Cluster,
    database: &str,
    dump: impl Into<Program>,
    mut at: impl FnMut(Moment) -> Then,
) -> Finished {
    let mut holder = cluster.session(database);
    holder.exec(TAKE);
    let mut stage = Stage {
        observer: cluster.session(database),
        dump: dump.into().spawn(),
        cluster,
        database: database.to_owned(),
        holder,
    };
    let mut attempt = 1;
    loop {
        let window = match stage.wait_for_window() {
            Some(window) => window,
            None => return stage.let_go(),
        };
        if at(Moment { attempt, window }) == Then::End {
            return stage.let_go();
        }
        stage.advance();
        // A new attempt begins behind a lock phase, and behind a DDL step that failed: then
        // pg_dump is what comes to the barrier next.
        match (window, stage.who_waits()) {
            (Window::BeforeDdl, Some(Window::BeforeLocks)) => {}
            _ => attempt += 1,
        }
    }
}

/// The sessions around one dump.
struct Stage<'a> {
    cluster: &'a Cluster,
    database: String,
    observer: Session,
    /// Has the barrier.
    holder: Session,
    dump: Running,
}

impl Stage<'_> {
    /// Waits until the dump has come to the barrier; `None` if it has ended instead.
    #[track_caller]
    fn wait_for_window(&mut self) -> Option<Window> {
        let window = self.who_waits()?;
        if window == Window::BeforeLocks {
            self.assert_nothing_is_locked();
        }
        Some(window)
    }

    /// Who has come to the barrier, `pg_dump` or a worker; `None` if the dump has ended.
    #[track_caller]
    fn who_waits(&mut self) -> Option<Window> {
        let waiting = format!(
            "SELECT a.application_name FROM pg_catalog.pg_stat_activity AS a \
              WHERE a.datname = pg_catalog.current_database() \
                AND (a.application_name LIKE 'pg_dump%' OR a.application_name = 'stillpoint') \
                AND {} = ANY (pg_catalog.pg_blocking_pids(a.pid))",
            self.holder.pid()
        );
        let (dump, observer) = (&mut self.dump, &mut self.observer);
        let found = poll(DEADLINE, || {
            // Asked before the query: a dump that has ended waits for nothing.
            let ended = dump.has_ended();
            let names = observer.texts(&waiting);
            match names.first().map(String::as_str) {
                Some(name) if name.starts_with("pg_dump") => Some(Some(Window::BeforeDdl)),
                Some(_) => Some(Some(Window::BeforeLocks)),
                None => ended.then_some(None),
            }
        });
        found.unwrap_or_else(|| {
            panic!("the dump never came to the barrier\n{}", self.observer.activity())
        })
    }

    /// Lets the dump go on to its next window, in which another session has the barrier.
    #[track_caller]
    fn advance(&mut self) {
        let next = self.cluster.session(&self.database).start(TAKE);
        wait_until_waiting(&mut self.observer, &next);
        self.holder.exec("COMMIT");
        self.holder = next.finish();
    }

    #[track_caller]
    fn let_go(mut self) -> Finished {
        self.holder.exec("COMMIT");
        self.dump.wait()
    }

    /// The window would be none if the dump had a lock on a table that it is about.
    #[track_caller]
    fn assert_nothing_is_locked(&mut self) {
        let locked = self.observer.texts(
            "SELECT l.relation::pg_catalog.regclass::text \
               FROM pg_catalog.pg_locks AS l \
               JOIN pg_catalog.pg_stat_activity AS a USING (pid) \
               JOIN pg_catalog.pg_class AS c ON c.oid = l.relation \
              WHERE a.datname = pg_catalog.current_database() \
                AND (a.application_name LIKE 'pg_dump%' OR a.application_name = 'stillpoint') \
                AND l.granted AND c.relkind IN ('r', 'p', 'm') AND c.oid >= 16384",
        );
        assert!(locked.is_empty(), "locked before the window: {locked:?}");
    }
}

/// Waits until a statement in the background is queued for a lock.
#[track_caller]
fn wait_until_waiting(observer: &mut Session, statement: &Background) {
    let pid = statement.pid();
    wait_until(
        observer,
        &format!(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE pid = {pid} AND NOT granted)"
        ),
    );
}
