//! What is asked of the ledger: the extension's functions and its view.

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{Error, Session};

/// A session in a database where the ledger can be read.
///
/// Only [`open`](Self::open) makes one. Whoever may create a schema could otherwise wait with
/// functions of his own for a superuser who calls these here.
#[derive(Debug)]
pub struct Ledger {
    session: Session,
    place: Place,
}

/// Where a ledger is, and who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The database's name.
    pub database: String,
    /// The role whose privileges count.
    pub role: String,
}

/// Why the ledger cannot be read in a database that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The extension is not there.
    NotInstalled,
    /// It is, in a version whose SQL cannot do this.
    Outdated {
        /// That version.
        version: String,
    },
    /// Its schema is closed to the role.
    NoUsage,
}

/// The first version of the extension that has these functions.
pub const NEEDED_VERSION: &str = "0.3.0";

/// What `stillpoint.status()` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The server has loaded the library at its start.
    pub preloaded: bool,
    /// Changes are recorded.
    pub recording: bool,
    /// Since when nothing is missing.
    pub complete_since: Option<String>,
    /// Rows of the ledger.
    pub rows: i64,
    /// Its size with indexes.
    pub bytes: i64,
    /// The oldest bookmark that is still valid.
    pub oldest_bookmark: Option<String>,
}

/// A file whose bytes are void.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VoidFile {
    /// Below the data directory, of the main fork's first segment.
    pub path: String,
    /// OID of its tablespace.
    pub tablespace: u32,
    /// Its number.
    pub filenode: u32,
    /// OID of the relation whose file it is, or was.
    pub relation: u32,
    /// That one's name, without the schema.
    pub relation_name: String,
    /// What has happened to it.
    pub effects: Vec<String>,
    /// Tags of the statements that did it.
    pub commands: Vec<String>,
    /// When the first of that was recorded.
    pub first_at: String,
    /// When the last was.
    pub last_at: String,
}

/// A line of the view `stillpoint.consumers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Consumer {
    /// Its name.
    pub name: String,
    /// When it was registered.
    pub registered_at: String,
    /// When its last backup ended.
    pub last_backup_at: Option<String>,
    /// The bookmark of that one, on which the next is based.
    pub bookmark: Option<String>,
    /// The bookmark was older than the ledger keeps rows for.
    pub lost: bool,
    /// The server process of the session in which a backup runs.
    pub running_pid: Option<i32>,
}

/// What `stillpoint.begin_backup()` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Begun {
    /// The bookmark of the last backup.
    pub base: Option<String>,
    /// The new one.
    pub bookmark: String,
    /// The ledger knows all that has become void in between.
    pub complete: bool,
    /// Why it does not.
    pub reason: Option<String>,
}

impl Ledger {
    /// Looks whether the extension is there, new enough, and open to the role.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn open(mut session: Session) -> Result<Result<Self, (Unusable, Place)>, Error> {
        let row = session
            .client
            .query_one(
                "SELECT pg_catalog.current_database()::pg_catalog.text, \
                        CURRENT_USER::pg_catalog.text, e.extversion, \
                        pg_catalog.has_schema_privilege(n.oid, 'USAGE') \
                   FROM (SELECT 1) AS one \
                   LEFT JOIN (pg_catalog.pg_extension AS e \
                              JOIN pg_catalog.pg_namespace AS n \
                                ON n.oid = e.extnamespace AND n.nspname = 'stillpoint') \
                     ON e.extname = 'stillpoint'",
                &[],
            )
            .map_err(Error::doing("look for the extension"))?;
        let place = Place { database: row.get(0), role: row.get(1) };
        let unusable = match row.get::<_, Option<String>>(2) {
            None => Some(Unusable::NotInstalled),
            Some(version) if !is_at_least(&version, NEEDED_VERSION) => {
                Some(Unusable::Outdated { version })
            }
            Some(_) if row.get::<_, Option<bool>>(3) != Some(true) => Some(Unusable::NoUsage),
            Some(_) => None,
        };
        if let Some(unusable) = unusable {
            return Ok(Err((unusable, place)));
        }
        session.admit_writes_and_views()?;
        Ok(Ok(Self { session, place }))
    }

    /// Where it is, and who asks.
    #[must_use]
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// Whether changes are recorded, and since when.
    ///
    /// # Errors
    ///
    /// What the server says, and a lost connection; so it is for all calls.
    pub fn status(&mut self) -> Result<Status, Error> {
        let query = format!(
            "SELECT preloaded, recording, {}, \"rows\", bytes, oldest_bookmark \
               FROM stillpoint.status()",
            utc("complete_since")
        );
        let row = self.one("read the ledger's status", &query, &[])?;
        Ok(Status {
            preloaded: row.get(0),
            recording: row.get(1),
            complete_since: row.get(2),
            rows: row.get(3),
            bytes: row.get(4),
            oldest_bookmark: row.get(5),
        })
    }

    /// Takes a bookmark.
    ///
    /// # Errors
    ///
    /// See [`status`](Self::status).
    pub fn bookmark(&mut self) -> Result<String, Error> {
        Ok(self.one("take a bookmark", "SELECT stillpoint.bookmark()", &[])?.get(0))
    }

    /// What has become void since `base`, or between it and `upto`, in the order of the paths.
    ///
    /// # Errors
    ///
    /// A bookmark that the ledger does not reach back to; see [`status`](Self::status).
    pub fn invalidated(&mut self, base: &str, upto: Option<&str>) -> Result<Vec<VoidFile>, Error> {
        // With the types said, no function of the same name fits better.
        let (function, parameters): (_, &[&(dyn ToSql + Sync)]) = match &upto {
            None => ("invalidated_since($1::pg_catalog.text)", &[&base]),
            Some(upto) => {
                ("invalidated_between($1::pg_catalog.text, $2::pg_catalog.text)", &[&base, upto])
            }
        };
        let query = format!(
            "SELECT path, tablespace, filenode, relation, relation_name, effects, commands, \
                    {}, {} \
               FROM stillpoint.{function} \
              ORDER BY path COLLATE pg_catalog.\"C\"",
            utc("first_at"),
            utc("last_at")
        );
        let rows = self
            .session
            .client
            .query(&query, parameters)
            .map_err(Error::doing("read what is void"))?;
        Ok(rows.iter().map(void_file).collect())
    }

    /// The files of these directories, all below the data directory, whose names begin with the
    /// number that stands at the same place in the second list: directory and name. The server
    /// is asked, for the data directory may be another machine's.
    ///
    /// # Errors
    ///
    /// No right to list directories; see [`status`](Self::status).
    pub fn files_like(
        &mut self,
        directories: &[&str],
        numbers: &[&str],
    ) -> Result<Vec<(String, String)>, Error> {
        let rows = self
            .session
            .client
            .query(
                "SELECT f.directory, f.name \
                   FROM (SELECT d.directory, l.name \
                           FROM (SELECT DISTINCT u.directory \
                                   FROM pg_catalog.unnest($1::pg_catalog.text[]) \
                                        AS u (directory)) AS d \
                          CROSS JOIN LATERAL pg_catalog.pg_ls_dir(d.directory, true, false) \
                                        AS l (name)) AS f \
                   JOIN ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), \
                                   pg_catalog.unnest($2::pg_catalog.text[])) \
                        AS wanted (directory, number) \
                     ON wanted.directory = f.directory \
                    AND wanted.number = pg_catalog.substring(f.name, '^[0-9]+')",
                &[&directories, &numbers],
            )
            .map_err(Error::doing("list files of the data directory"))?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// The backup tools that the ledger knows, by their names.
    ///
    /// # Errors
    ///
    /// See [`status`](Self::status).
    pub fn consumers(&mut self) -> Result<Vec<Consumer>, Error> {
        let query = format!("{} ORDER BY name COLLATE pg_catalog.\"C\"", consumers());
        let rows =
            self.session.client.query(&query, &[]).map_err(Error::doing("read the consumers"))?;
        Ok(rows.iter().map(consumer).collect())
    }

    /// One of them.
    ///
    /// # Errors
    ///
    /// See [`status`](Self::status).
    pub fn consumer(&mut self, name: &str) -> Result<Option<Consumer>, Error> {
        let query = format!("{} WHERE name = $1::pg_catalog.text", consumers());
        let row = self
            .session
            .client
            .query_opt(&query, &[&name])
            .map_err(Error::doing("read the consumers"))?;
        Ok(row.as_ref().map(consumer))
    }

    /// Makes a backup tool known.
    ///
    /// # Errors
    ///
    /// See [`status`](Self::status).
    pub fn register(&mut self, name: &str) -> Result<(), Error> {
        let query = "SELECT stillpoint.register_consumer($1::pg_catalog.text)";
        self.one("register the consumer", query, &[&name])?;
        Ok(())
    }

    /// Forgets it.
    ///
    /// # Errors
    ///
    /// See [`status`](Self::status).
    pub fn drop_consumer(&mut self, name: &str) -> Result<(), Error> {
        let query = "SELECT stillpoint.drop_consumer($1::pg_catalog.text)";
        self.one("drop the consumer", query, &[&name])?;
        Ok(())
    }

    /// Begins a backup. No other session can begin one for the same consumer while this one
    /// lasts.
    ///
    /// # Errors
    ///
    /// A backup that runs; see [`status`](Self::status).
    pub fn begin_backup(&mut self, name: &str) -> Result<Begun, Error> {
        let row = self.one(
            "begin a backup",
            "SELECT base, bookmark, complete, reason \
               FROM stillpoint.begin_backup($1::pg_catalog.text)",
            &[&name],
        )?;
        Ok(Begun {
            base: row.get(0),
            bookmark: row.get(1),
            complete: row.get(2),
            reason: row.get(3),
        })
    }

    /// Makes the backup that began with this bookmark the one on which the next is based.
    ///
    /// # Errors
    ///
    /// Another backup was begun meanwhile; see [`status`](Self::status).
    pub fn end_backup(&mut self, name: &str, bookmark: &str) -> Result<(), Error> {
        let query = "SELECT stillpoint.end_backup($1::pg_catalog.text, $2::pg_catalog.text)";
        self.one("end the backup", query, &[&name, &bookmark])?;
        Ok(())
    }

    /// Removes rows that nobody needs any more; gives how many.
    ///
    /// # Errors
    ///
    /// See [`status`](Self::status).
    pub fn prune(&mut self) -> Result<i64, Error> {
        Ok(self.one("prune the ledger", "SELECT stillpoint.prune()", &[])?.get(0))
    }

    fn one(
        &mut self,
        doing: &str,
        query: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, Error> {
        self.session.client.query_one(query, parameters).map_err(Error::doing(doing))
    }
}

impl Session {
    /// What a role or a database has been set to must not decide whether a bookmark can be taken,
    /// and a snapshot must be one of its own statement. The ledger's view is no system view, and
    /// its tables are those that the extension owns: foreign ones stay forbidden.
    fn admit_writes_and_views(&mut self) -> Result<(), Error> {
        self.client
            .batch_execute(
                "SET default_transaction_read_only = off; \
                 SET default_transaction_isolation = 'read committed'; \
                 SELECT pg_catalog.set_config(name, 'foreign-table', false) \
                   FROM pg_catalog.pg_settings WHERE name = 'restrict_nonsystem_relation_kind'",
            )
            .map_err(Error::doing("apply the session's settings"))
    }
}

/// A time in UTC as RFC 3339 has it, whatever the session's zone and date style.
fn utc(column: &str) -> String {
    format!(
        "pg_catalog.to_char(pg_catalog.timezone('UTC', {column}), \
         'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
    )
}

fn consumers() -> String {
    format!(
        "SELECT name, {}, {}, bookmark, lost, running_pid FROM stillpoint.consumers",
        utc("registered_at"),
        utc("last_backup_at")
    )
}

fn consumer(row: &Row) -> Consumer {
    Consumer {
        name: row.get(0),
        registered_at: row.get(1),
        last_backup_at: row.get(2),
        bookmark: row.get(3),
        lost: row.get(4),
        running_pid: row.get(5),
    }
}

fn void_file(row: &Row) -> VoidFile {
    VoidFile {
        path: row.get(0),
        tablespace: row.get(1),
        filenode: row.get(2),
        relation: row.get(3),
        relation_name: row.get(4),
        effects: row.get(5),
        commands: row.get(6),
        first_at: row.get(7),
        last_at: row.get(8),
    }
}

/// Whether a version of the extension is the needed one or a later one. What cannot be read as a
/// version is none that we know.
fn is_at_least(version: &str, needed: &str) -> bool {
    let numbers = |text: &str| {
        text.split('.').map(|number| number.parse::<u32>().ok()).collect::<Option<Vec<_>>>()
    };
    numbers(version).is_some_and(|version| Some(version) >= numbers(needed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for version in ["0.3.0", "0.3.1", "0.10.0", "1.0", "1.0.0"] {
            assert!(is_at_least(version, "0.3.0"), "{version}");
        }
        for version in ["0.1.0", "0.2.9", "0.3", "", "unknown", "0.3.x"] {
            assert!(!is_at_least(version, "0.3.0"), "{version}");
        }
    }
}
