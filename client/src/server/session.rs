//! A connection and its transaction: settings, snapshots, and proof of whom we talk to.

use std::fmt;
use std::time::Duration;

use super::Error;
use crate::interrupt::Cancellable;
use crate::quote::quote_literal;
use crate::wire::{CancelToken, Client};

/// `server_version_num`, for example 150020.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion(pub u32);

impl ServerVersion {
    /// The oldest server whose catalogs and snapshots we know: PostgreSQL 13.
    pub const OLDEST: Self = Self(130_000);

    /// The major version, for example 15.
    #[must_use]
    pub const fn major(self) -> u32 {
        self.0 / 10_000
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major(), self.0 % 10_000)
    }
}

/// The name of an exported snapshot (`pg_export_snapshot()`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotId(pub String);

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which server a session is on, and what it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `pg_control_system().system_identifier`, or `None` where we may not ask.
    pub system_identifier: Option<String>,
    /// The session's process id on the server.
    pub pid: i32,
    /// The database's name.
    pub database: String,
    /// Its encoding, by PostgreSQL's name.
    pub encoding: String,
    /// Whether the server is in recovery (a standby).
    pub in_recovery: bool,
}

/// One connection, with settings of its own that no role, database or variable can change.
pub struct Session {
    pub(super) client: Client,
    version: ServerVersion,
    search_path: Vec<String>,
    _cancellable: Cancellable,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("version", &self.version).finish_non_exhaustive()
    }
}

/// Somebody who may create objects can put a view in the place of a sequence that we are about to
/// read, and its functions would run with our rights (CVE-2024-7348). `pg_dump` forbids itself to
/// expand views that are not the system's, where the server is of a minor version that can.
const NO_USERS_VIEWS: &str = "SELECT pg_catalog.set_config(name, 'view, foreign-table', false) \
       FROM pg_catalog.pg_settings WHERE name = 'restrict_nonsystem_relation_kind'";

impl Session {
    /// Takes over a new connection and pins its settings, unless the server is older than
    /// [`ServerVersion::OLDEST`].
    ///
    /// # Errors
    ///
    /// A server that does not answer.
    pub fn start(client: Client) -> Result<Self, Error> {
        Self::start_with(client, None)
    }

    /// The same, for a session that waits no longer for any lock, those of the catalogs included.
    ///
    /// # Errors
    ///
    /// See [`start`](Self::start).
    pub fn start_within(client: Client, lock_timeout: Duration) -> Result<Self, Error> {
        Self::start_with(client, Some(lock_timeout))
    }

    fn start_with(client: Client, lock_timeout: Option<Duration>) -> Result<Self, Error> {
        let cancellable = Cancellable::register(client.cancel_token());
        let mut session = Self {
            client,
            version: ServerVersion(0),
            search_path: Vec::new(),
            _cancellable: cancellable,
        };
        // First of all: the next statement reads catalogs.
        let lock_timeout = lock_timeout.map_or(0, milliseconds);
        session
            .client
            .batch_execute(&format!("SET lock_timeout = {lock_timeout}"))
            .map_err(Error::doing("set the lock timeout"))?;
        session.read_version()?;
        // An older one does not know all of the settings; it is refused by its version.
        if session.version >= ServerVersion::OLDEST {
            session.pin_settings()?;
        }
        Ok(session)
    }

    /// The server's version.
    #[must_use]
    pub const fn version(&self) -> ServerVersion {
        self.version
    }

    /// The schemas in which the user's own `search_path` finds a name that has no schema.
    #[must_use]
    pub fn user_search_path(&self) -> &[String] {
        &self.search_path
    }

    /// What ends this session's query from another thread.
    #[must_use]
    pub fn canceller(&self) -> CancelToken {
        self.client.cancel_token()
    }

    fn read_version(&mut self) -> Result<(), Error> {
        // The search path is read here, before it is pinned: patterns without a schema mean
        // what the user sees.
        let row = self
            .client
            .query_one(
                "SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4, \
                        pg_catalog.current_schemas(true)::pg_catalog.text[]",
                &[],
            )
            .map_err(Error::doing("read the server's version"))?;
        self.version = ServerVersion(u32::try_from(row.get::<_, i32>(0)).unwrap_or_default());
        self.search_path = row.get(1);
        Ok(())
    }

    /// A dump must not depend on what a role or database has been set to, and must not be
    /// ended by a timeout that was meant for an application.
    fn pin_settings(&mut self) -> Result<(), Error> {
        let mut settings = vec![
            ("search_path", "''"),
            ("datestyle", "'ISO'"),
            ("intervalstyle", "'postgres'"),
            ("extra_float_digits", "3"),
            ("bytea_output", "'hex'"),
            ("xmloption", "'content'"),
            ("standard_conforming_strings", "on"),
            ("quote_all_identifiers", "off"),
            ("synchronize_seqscans", "off"),
            ("row_security", "off"),
            ("statement_timeout", "0"),
            ("idle_in_transaction_session_timeout", "0"),
            ("jit", "off"),
            // Plans for arrays of thousands of OIDs must know that they are so long.
            ("plan_cache_mode", "force_custom_plan"),
        ];
        if self.version.major() >= 14 {
            settings.push(("idle_session_timeout", "0"));
        }
        if self.version.major() >= 17 {
            settings.push(("transaction_timeout", "0"));
        }
        let mut commands: String =
            settings.iter().map(|(name, value)| format!("SET {name} = {value};")).collect();
        commands.push_str(NO_USERS_VIEWS);
        self.client.batch_execute(&commands).map_err(Error::doing("apply the session's settings"))
    }

    /// Starts the transaction whose snapshot the dump is of.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn begin(&mut self) -> Result<(), Error> {
        self.client
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .map_err(Error::doing("start a transaction"))
    }

    /// Takes the snapshot of a transaction that has just begun and makes it known to others
    /// (`pg_export_snapshot()`); it lives as long as the transaction.
    ///
    /// # Errors
    ///
    /// A server that cannot export snapshots.
    pub fn export_snapshot(&mut self) -> Result<SnapshotId, Error> {
        let row = self
            .client
            .query_one("SELECT pg_catalog.pg_export_snapshot()", &[])
            .map_err(Error::doing("export a snapshot"))?;
        Ok(SnapshotId(row.get(0)))
    }

    /// Starts a transaction under a snapshot that another session has exported.
    ///
    /// # Errors
    ///
    /// The exporting transaction has ended, or is on another server.
    pub fn begin_with_snapshot(&mut self, snapshot: &SnapshotId) -> Result<(), Error> {
        let commands = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {}",
            quote_literal(&snapshot.0)
        );
        self.client.batch_execute(&commands).map_err(Error::doing("import the snapshot"))
    }

    /// How long each further statement of this transaction may take, its waiting for locks
    /// included: a statement that takes a thousand locks could wait a thousand times for a
    /// `lock_timeout`.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn bound_statements(&mut self, limit: Duration) -> Result<(), Error> {
        let limit = milliseconds(limit);
        self.client
            .batch_execute(&format!(
                "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = {limit}"
            ))
            .map_err(Error::doing("set the statement timeout"))
    }

    /// How long each further lock of this transaction may be waited for, while statements may
    /// take as long as they like.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn bound_locks(&mut self, limit: Duration) -> Result<(), Error> {
        let limit = milliseconds(limit);
        self.client
            .batch_execute(&format!(
                "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {limit}"
            ))
            .map_err(Error::doing("set the lock timeout"))
    }

    /// Which server and database this is.
    ///
    /// # Errors
    ///
    /// A lost connection.
    pub fn identity(&mut self) -> Result<Identity, Error> {
        let doing = "identify the server";
        let row = self
            .client
            .query_one(
                "SELECT pg_catalog.has_function_privilege(\
                            'pg_catalog.pg_control_system()', 'EXECUTE'), \
                        d.datname::pg_catalog.text, \
                        pg_catalog.pg_encoding_to_char(d.encoding)::pg_catalog.text, \
                        pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid() \
                   FROM pg_catalog.pg_database AS d \
                  WHERE d.datname = pg_catalog.current_database()",
                &[],
            )
            .map_err(Error::doing(doing))?;
        // A query of its own: the privilege is asked for when a query starts, even one that
        // would never call the function.
        let system_identifier = if row.get(0) {
            let query =
                "SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system()";
            Some(self.client.query_one(query, &[]).map_err(Error::doing(doing))?.get(0))
        } else {
            None
        };
        Ok(Identity {
            system_identifier,
            database: row.get(1),
            encoding: row.get(2),
            in_recovery: row.get(3),
            pid: row.get(4),
        })
    }
}

/// A timeout as the server takes it: at least 1, since 0 would mean for ever, and rounded up, so
/// that what it ends has really used up the limit.
fn milliseconds(limit: Duration) -> u128 {
    limit.as_nanos().div_ceil(1_000_000).clamp(1, i32::MAX as u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_never_ends_before_its_limit_and_is_never_endless() {
        assert_eq!(milliseconds(Duration::from_nanos(997_000_001)), 998);
        assert_eq!(milliseconds(Duration::from_millis(997)), 997);
        assert_eq!(milliseconds(Duration::ZERO), 1);
    }
}
