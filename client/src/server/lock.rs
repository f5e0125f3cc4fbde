//! Locks on the relations of a dump.

use std::collections::HashSet;
use std::fmt::{self, Write as _};

use stillpoint_check::Oid;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{Error, Session};

/// A session that stands in our way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The relation it stands in front of, where that is known.
    pub relation: Option<Oid>,
    /// Its process id; 0 for a prepared transaction.
    pub pid: i32,
    /// Its role.
    pub user: String,
    /// Its `application_name`.
    pub application: String,
    /// Its current or last statement, as far as we may see it.
    pub query: String,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pid == 0 {
            return f.write_str("a prepared transaction");
        }
        let query = self.query.split_whitespace().collect::<Vec<_>>().join(" ");
        write!(
            f,
            "process {} (user \"{}\", application \"{}\"): {query}",
            self.pid, self.user, self.application
        )
    }
}

/// The OID of this database, as a part of a query.
const THIS_DATABASE: &str = "(SELECT d.oid FROM pg_catalog.pg_database AS d \
                               WHERE d.datname = pg_catalog.current_database())";

impl Session {
    /// Locks relations by name in ACCESS SHARE mode, all or none: if one cannot be locked, the
    /// locks of the others are given back and the transaction goes on.
    ///
    /// # Errors
    ///
    /// The first relation that cannot be locked.
    pub fn lock(&mut self, quoted_names: &[&str]) -> Result<(), Error> {
        let list = only(quoted_names);
        self.in_savepoint("lock a relation", &format!("LOCK TABLE {list} IN ACCESS SHARE MODE"))
    }

    /// The same without waiting and without a savepoint of its own: a lock that is not to be had
    /// at once fails the transaction, back to the caller's savepoint.
    ///
    /// # Errors
    ///
    /// The first relation that cannot be locked.
    pub fn lock_at_once(&mut self, quoted_names: &[&str]) -> Result<(), Error> {
        let list = only(quoted_names);
        self.client
            .batch_execute(&format!("LOCK TABLE {list} IN ACCESS SHARE MODE NOWAIT"))
            .map_err(Error::doing("lock a relation"))
    }

    /// Runs one statement in a savepoint of its own, so that its failure costs only itself.
    fn in_savepoint(&mut self, doing: &str, statement: &str) -> Result<(), Error> {
        let commands = format!("SAVEPOINT stillpoint; {statement}; RELEASE SAVEPOINT stillpoint");
        let outcome = self.client.batch_execute(&commands).map_err(Error::doing(doing));
        if outcome.is_err() {
            self.undo_to_savepoint();
        }
        outcome
    }

    /// Goes back after a failure, which is what is told: where going back fails too, a session
    /// that was ended has caused both, and only the first error says by whom.
    pub(crate) fn undo_to_savepoint(&mut self) {
        let _ = self.back_to_savepoint();
    }

    /// Sets a savepoint, to go back to if the next statement fails.
    pub(crate) fn savepoint(&mut self) -> Result<(), Error> {
        self.client.batch_execute("SAVEPOINT stillpoint").map_err(Error::doing("set a savepoint"))
    }

    /// Forgets the savepoint.
    pub(crate) fn release_savepoint(&mut self) -> Result<(), Error> {
        self.client
            .batch_execute("RELEASE SAVEPOINT stillpoint")
            .map_err(Error::doing("release a savepoint"))
    }

    /// Goes back to the savepoint and forgets it.
    pub(crate) fn back_to_savepoint(&mut self) -> Result<(), Error> {
        self.client
            .batch_execute("ROLLBACK TO SAVEPOINT stillpoint; RELEASE SAVEPOINT stillpoint")
            .map_err(Error::doing("go back to a savepoint"))
    }

    /// The relations on which this session holds a lock. A name that was locked may have meant
    /// another relation than under the snapshot; this says which ones it really was.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn locked_relations(&mut self) -> Result<HashSet<Oid>, Error> {
        let rows = self
            .client
            .query(
                "SELECT l.relation \
                   FROM pg_catalog.pg_locks AS l \
                  WHERE l.locktype = 'relation' \
                    AND l.pid = pg_catalog.pg_backend_pid() AND l.granted",
                &[],
            )
            .map_err(Error::doing("read the locks that are held"))?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// The server process of the program that we have started under this `application_name`,
    /// once it has taken over this session's snapshot.
    ///
    /// Anybody can give himself the name, so more is asked for: our role and database, a start
    /// later than ours, our snapshot's `xmin`, and that there is no second such process.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn backend_of(&mut self, application: &str) -> Result<Option<i32>, Error> {
        self.see_activity_anew()?;
        let rows = self
            .client
            .query(
                "SELECT a.pid \
                   FROM pg_catalog.pg_stat_activity AS me \
                   JOIN pg_catalog.pg_stat_activity AS a \
                     ON a.datid = me.datid AND a.usesysid = me.usesysid \
                    AND a.backend_start > me.backend_start \
                    AND a.backend_xmin = me.backend_xmin \
                  WHERE me.pid = pg_catalog.pg_backend_pid() AND a.application_name = $1",
                &[&application],
            )
            .map_err(Error::doing("find the session of pg_dump"))?;
        Ok(match rows.as_slice() {
            [row] => Some(row.get(0)),
            _ => None,
        })
    }

    /// Whether the server process holds ACCESS SHARE locks on all the relations, and nobody is
    /// queued for a lock on any of them that does not go with these.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn has_locked_all(&mut self, pid: i32, relations: &[Oid]) -> Result<bool, Error> {
        let row = self
            .client
            .query_one(
                "SELECT pg_catalog.count(DISTINCT l.relation) \
                            FILTER (WHERE l.pid = $1 AND l.granted \
                                      AND l.mode = 'AccessShareLock'), \
                        pg_catalog.count(*) \
                            FILTER (WHERE NOT l.granted AND l.mode = 'AccessExclusiveLock') \
                   FROM pg_catalog.unnest($2::pg_catalog.oid[]) AS w (relation) \
                   JOIN pg_catalog.pg_locks AS l \
                     ON l.locktype = 'relation' AND l.relation = w.relation \
                    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d \
                                       WHERE d.datname = pg_catalog.current_database())",
                &[&pid, &relations],
            )
            .map_err(Error::doing("read the locks of pg_dump"))?;
        let (locked, queued): (i64, i64) = (row.get(0), row.get(1));
        Ok(usize::try_from(locked) == Ok(relations.len()) && queued == 0)
    }

    /// Within a transaction the view of activities is kept as it was first seen.
    fn see_activity_anew(&mut self) -> Result<(), Error> {
        self.client
            .execute("SELECT pg_catalog.pg_stat_clear_snapshot()", &[])
            .map_err(Error::doing("look at the sessions anew"))?;
        Ok(())
    }

    /// Who holds, or waits in front for, a lock on one of the relations that ACCESS SHARE
    /// cannot pass.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn blockers(&mut self, relations: &[Oid]) -> Result<Vec<Blocker>, Error> {
        let here = format!("l.relation = ANY ($1) AND l.database = {THIS_DATABASE}");
        self.exclusive_lockers(&here, &[&relations])
    }

    /// Who keeps, or queues to keep, everybody from a catalog, and with that every new session
    /// from its start.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn blockers_of_catalogs(&mut self) -> Result<Vec<Blocker>, Error> {
        self.see_activity_anew()?;
        let catalogs =
            format!("l.relation < 16384 AND (l.database = 0 OR l.database = {THIS_DATABASE})");
        self.exclusive_lockers(&catalogs, &[])
    }

    /// Who holds, or queues for, ACCESS EXCLUSIVE on the relations that `condition` names.
    fn exclusive_lockers(
        &mut self,
        condition: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Blocker>, Error> {
        let query = format!(
            "SELECT DISTINCT l.relation, COALESCE(l.pid, 0), \
                    COALESCE(a.usename, '')::pg_catalog.text, \
                    COALESCE(a.application_name, ''), COALESCE(a.query, '') \
               FROM pg_catalog.pg_locks AS l \
               LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid \
              WHERE l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock' \
                AND {condition} \
              ORDER BY 1, 2"
        );
        let rows = self
            .client
            .query(&query, parameters)
            .map_err(Error::doing("find out who holds the locks"))?;
        Ok(rows.iter().map(blocker).collect())
    }

    /// Whether there is a session of this `application_name`. One that is still being started has
    /// none yet.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn has_session_of(&mut self, application: &str) -> Result<bool, Error> {
        self.see_activity_anew()?;
        let row = self
            .client
            .query_one(
                "SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a \
                                 WHERE a.application_name = $1)",
                &[&application],
            )
            .map_err(Error::doing("find the session of pg_dump"))?;
        Ok(row.get(0))
    }

    /// Whom the sessions of this `application_name` are waiting for, in this database.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn blockers_of(&mut self, application: &str) -> Result<Vec<Blocker>, Error> {
        self.see_activity_anew()?;
        let rows = self
            .client
            .query(
                "SELECT DISTINCT NULL::pg_catalog.oid, b.pid, \
                        COALESCE(s.usename, '')::pg_catalog.text, \
                        COALESCE(s.application_name, ''), COALESCE(s.query, '') \
                   FROM pg_catalog.pg_stat_activity AS a \
                  CROSS JOIN pg_catalog.unnest(pg_catalog.pg_blocking_pids(a.pid)) AS b (pid) \
                   LEFT JOIN pg_catalog.pg_stat_activity AS s ON s.pid = b.pid \
                  WHERE a.application_name = $1 \
                    AND a.datname = pg_catalog.current_database() \
                  ORDER BY 2",
                &[&application],
            )
            .map_err(Error::doing("find out who holds the locks"))?;
        Ok(rows.iter().map(blocker).collect())
    }
}

/// ONLY: each relation is locked by the worker that it was dealt to, never by way of its parent.
fn only(quoted_names: &[&str]) -> String {
    let mut list = String::new();
    for name in quoted_names {
        let separator = if list.is_empty() { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(list, "{separator}ONLY {name}");
    }
    list
}

fn blocker(row: &Row) -> Blocker {
    Blocker {
        relation: row.get(0),
        pid: row.get(1),
        user: row.get(2),
        application: row.get(3),
        query: row.get(4),
    }
}
