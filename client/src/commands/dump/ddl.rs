//! The DDL step: `pg_dump` writes definitions and large objects under our snapshot.
//!
//! No worker of ours asks for a lock before `pg_dump` holds its own on every table that they will
//! lock. With a worker's ACCESS SHARE held and somebody's ACCESS EXCLUSIVE waiting for it,
//! `pg_dump` would queue behind that one for ever, in a cycle of which the server sees only a
//! part. A lock that it holds already it never has to ask for again.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use stillpoint_check::Oid;

use super::pg_dump::{End, PgDump, Waker, application};
use super::snapshot::{Peers, Resolved, Snapshot};
use super::{AttemptEnd, Error, Options, Timings};
use crate::archive::Toc;
use crate::manifest::AttemptOutcome;
use crate::programs::Program;
use crate::server::{NamedObjects, PARTITIONED_TABLE, RelationRow};

/// `pg_dump` runs; it has been told what to describe in the user's words.
pub struct Started {
    // Dropped, and ended, before the session that holds its snapshot.
    pub run: PgDump,
    pub waker: Waker,
    pub resolved: Resolved,
    pub peers: Peers,
}

/// `pg_dump` runs, and what has to be in its archive is known.
pub struct Describing {
    // Dropped, and ended, before the session that holds its snapshot.
    pub run: PgDump,
    pub waker: Waker,
    pub snapshot: Snapshot,
    pub peers: Peers,
    pub expected: Expected,
}

/// What has to be in the archive, by the catalogs under the snapshot.
pub struct Expected {
    /// Tables that it must describe, partitioned ones included.
    pub tables: HashSet<Oid>,
    /// Sequences and materialized views that it must describe, since the user has named them.
    pub named: Vec<Oid>,
    /// Sequences of extensions' configurations, which it does not describe.
    pub configuration: Vec<RelationRow>,
    /// Relations that hold nothing on this server.
    pub unreadable: HashSet<Oid>,
    /// What definitions may call by name.
    pub names: NamedObjects,
}

/// The archive that has the definitions of all that is to be dumped.
pub struct Described {
    pub snapshot: Snapshot,
    pub peers: Peers,
    pub toc: Toc,
    pub expected: Expected,
}

/// How many milliseconds a `pg_dump` may wait for its tables of which nobody takes care any more.
fn backstop(lock_timeout: Duration) -> u128 {
    const LONGER: Duration = Duration::from_secs(10);
    lock_timeout.saturating_add(LONGER).as_millis().min(i32::MAX as u128)
}

impl Resolved {
    /// Lets `pg_dump` begin to write the archive without rows into `directory`, which must be
    /// empty.
    pub fn describe(
        mut self,
        options: &Options,
        pg_dump: &Program,
        directory: &Path,
    ) -> Result<Started, AttemptEnd> {
        let arguments = self.pg_dump_arguments(options, pg_dump, directory)?;
        let peers = self.snapshot.peers()?;
        let connected = &self.snapshot.connected;
        let password = connected.target.password();
        let (run, waker) = PgDump::start(pg_dump, &arguments, &application(connected), password)?;
        Ok(Started { run, waker, resolved: self, peers })
    }

    fn pg_dump_arguments(
        &self,
        options: &Options,
        pg_dump: &Program,
        directory: &Path,
    ) -> Result<Vec<OsString>, Error> {
        let connected = &self.snapshot.connected;
        let mut file = OsString::from("--file=");
        file.push(directory);
        let compression = options.compression.pg_dump_option(pg_dump.major)?;
        let mut arguments = vec![
            "--format=directory".into(),
            file,
            format!("--snapshot={}", self.snapshot.id).into(),
            // Rows are ours. One pattern for everything: thousands of names would be slow and
            // end at the system's limit for arguments.
            "--exclude-table-data=*.*".into(),
            // The whole archive is synced once, when it is complete.
            "--no-sync".into(),
            "--no-password".into(),
            // We end it ourselves when it waits for too long; this is for the case that we are
            // killed meanwhile, and it is left alone with the locks that it has.
            format!("--lock-wait-timeout={}", backstop(options.lock_timeout)).into(),
            format!("--encoding={}", archive_encoding(&connected.identity.encoding)).into(),
            format!("--compress={compression}").into(),
            format!("--dbname={}", connected.target.conninfo()).into(),
        ];
        arguments.extend(self.selected.arguments.iter().map(OsString::from));
        Ok(arguments)
    }
}

impl Describing {
    /// Waits until `pg_dump` has locked all the tables, so that ours can be locked beside it.
    /// Gives false if it has ended before that, well or not.
    pub fn has_locked(&mut self, tables: &[Oid], options: &Options) -> Result<bool, Error> {
        let session = &mut self.snapshot.connected.session;
        self.run.has_locked(session, tables, options.lock_timeout)
    }

    /// Waits for the end of `pg_dump` and reads what it has written.
    pub fn finish(
        mut self,
        options: &Options,
        directory: &Path,
        timings: &mut Timings,
    ) -> Result<Described, AttemptEnd> {
        let end = self.run.watch(&mut self.snapshot.connected.session, options.lock_timeout)?;
        timings.ddl = self.run.elapsed();
        match end {
            End::Done(messages) => {
                for line in messages.lines() {
                    tracing::warn!("{line}");
                }
            }
            End::Failed(message) => return Err(self.explain_failure(message)),
            End::Blocked(blockers) => {
                return Err(AttemptEnd::over(
                    AttemptOutcome::LockTimeout,
                    Error::DdlBlocked { blockers },
                ));
            }
            End::Stopped => return Err(Error::Stopped.into()),
        }
        let toc = Toc::read(directory)?;
        if toc.has_data() {
            // With ours they would be restored twice.
            let message = "pg_dump has written data although it was told not to".into();
            return Err(AttemptEnd::Fatal(Error::PgDump { message }));
        }
        if let Some(difference) = difference(&toc, &self.expected) {
            // pg_dump resolves patterns through functions that read the live catalog, so
            // that a rename in the meantime can make the two differ.
            return Err(self.explain_failure(difference));
        }
        let latest = self.latest_names().map_err(|error| self.end(error))?;
        let renamed = renamed(&self.expected.names, &latest);
        if !renamed.is_empty() {
            return Err(AttemptEnd::over(AttemptOutcome::DdlFailed, Error::Renamed(renamed)));
        }
        let Self { snapshot, peers, expected, .. } = self;
        Ok(Described { snapshot, peers, toc, expected })
    }

    /// Tells an attempt that concurrent DDL has spoilt from a `pg_dump` that can never work.
    ///
    /// Its messages are the server's, in the server's language and without a code, so they are
    /// not read: the catalogs say whether any DDL has committed since the snapshot.
    fn explain_failure(&mut self, message: String) -> AttemptEnd {
        match self.ddl_has_committed() {
            Ok(true) => AttemptEnd::over(AttemptOutcome::DdlFailed, Error::PgDump { message }),
            Err(error) if error.is_late() => self.end(error),
            // A server that has gone away has ended pg_dump, too, and that one has said how.
            Ok(false) | Err(_) => AttemptEnd::Fatal(Error::PgDump { message }),
        }
    }

    fn latest_names(&self) -> Result<NamedObjects, Error> {
        Ok(self.peers.outside()?.named_objects()?)
    }

    fn end(&mut self, error: Error) -> AttemptEnd {
        AttemptEnd::from(error).naming_blockers(&mut self.snapshot.connected.session)
    }

    fn ddl_has_committed(&mut self) -> Result<bool, Error> {
        let then = self.snapshot.connected.session.catalog_digest()?;
        Ok(self.peers.outside()?.catalog_digest()? != then)
    }
}

/// The encoding in which everything is written. What is not UTF-8 is converted by the server;
/// SQL_ASCII says that the bytes have no known encoding, and they stay as they are.
pub fn archive_encoding(database_encoding: &str) -> &'static str {
    if database_encoding == "SQL_ASCII" { "SQL_ASCII" } else { "UTF8" }
}

/// How what `pg_dump` described differs from what we resolved: in tables, and in the sequences and
/// materialized views that the user has named.
fn difference(toc: &Toc, expected: &Expected) -> Option<String> {
    let tables: HashSet<Oid> = toc.table_oids().into_iter().collect();
    let others = toc.sequences().into_iter().chain(toc.materialized_views());
    let others: HashSet<Oid> = others.map(|described| described.oid).collect();
    let missing = expected
        .tables
        .difference(&tables)
        .chain(expected.named.iter().filter(|relation| !others.contains(relation)));
    let surplus = tables.difference(&expected.tables);
    if missing.clone().next().is_none() && surplus.clone().next().is_none() {
        return None;
    }
    Some(format!(
        "pg_dump and the catalogs disagree about what to dump (OIDs only in pg_dump's archive: \
         {}; only in the catalogs: {})",
        list(surplus),
        list(missing),
    ))
}

/// What the definitions may call by another name than it has in the same archive: `pg_dump`
/// finds objects by the snapshot, and asks the server, which answers from the latest catalogs,
/// for the text that names a column's type or a default's function. A table could not be
/// created by such a text, and its rows would be lost in the restore.
///
/// Of what is gone the server cannot tell the name, and `pg_dump` fails, but for the key of a
/// partitioned table: that comes out empty.
fn renamed(then: &NamedObjects, now: &NamedObjects) -> Vec<String> {
    let mut renamed: Vec<String> = then
        .iter()
        .filter(|(key, object)| match now.get(key) {
            Some(latest) => !object.is_named_like(latest),
            None => key.0 == PARTITIONED_TABLE,
        })
        .map(|((kind, ..), object)| format!("{kind} {}", object.name))
        .collect();
    renamed.sort_unstable();
    renamed
}

fn list<'a>(relations: impl Iterator<Item = &'a Oid>) -> String {
    let mut relations: Vec<&Oid> = relations.collect();
    relations.sort_unstable();
    if relations.is_empty() {
        return "none".into();
    }
    relations.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
