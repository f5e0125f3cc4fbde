//! The first stages of an attempt: a session, its snapshot, and what is to be dumped under it.

use std::time::{Duration, Instant};

use time::OffsetDateTime;

use super::{Error, Timings};
use crate::connect::Target;
use crate::manifest::CheckMethod;
use crate::selection::{Patterns, Selected};
use crate::server::{Fingerprint, Identity, ServerVersion, Session, SnapshotId};

/// A session on a server that we can dump from; nothing is read yet.
pub struct Connected {
    pub session: Session,
    /// Leads to this session's host alone.
    pub target: Target,
    pub identity: Identity,
    pub check: CheckMethod,
}

impl Connected {
    pub fn new(target: &Target) -> Result<Self, Error> {
        let (client, target) = target.connect_any()?;
        let mut session = Session::start(client)?;
        if session.version() < ServerVersion::OLDEST {
            return Err(Error::ServerTooOld { version: session.version() });
        }
        let identity = session.identity()?;
        let check = match session.extension_version()? {
            Some(Ok(_)) => CheckMethod::Extension,
            Some(Err(reason)) => {
                tracing::warn!(
                    "the extension is installed but cannot be used, checking by plain SQL: {reason}"
                );
                CheckMethod::Plain
            }
            None => CheckMethod::Plain,
        };
        Ok(Self { session, target, identity, check })
    }

    /// Takes the snapshot that the dump will be of, if this attempt succeeds.
    ///
    /// No lock is waited for longer than `lock_timeout` from here on: who has it may wait for
    /// another session of ours.
    pub fn snapshot(mut self, lock_timeout: Duration) -> Result<Snapshot, Error> {
        self.session.begin()?;
        self.session.bound_locks(lock_timeout)?;
        let id = self.session.export_snapshot()?;
        let taken_at = OffsetDateTime::now_utc();
        Ok(Snapshot { taken_at, id, connected: self, lock_timeout })
    }
}

/// A snapshot that others can import while the session's transaction lives.
pub struct Snapshot {
    pub connected: Connected,
    pub id: SnapshotId,
    pub taken_at: OffsetDateTime,
    lock_timeout: Duration,
}

impl Snapshot {
    /// Finds out what the user's words mean under this snapshot.
    pub fn resolve(
        mut self,
        patterns: &Patterns,
        timings: &mut Timings,
    ) -> Result<Resolved, Error> {
        let start = Instant::now();
        let connected = &mut self.connected;
        let selected = patterns.resolve(&mut connected.session, &connected.identity.database)?;
        timings.resolve += start.elapsed();
        Ok(Resolved { snapshot: self, selected })
    }

    /// How further sessions are had.
    pub fn peers(&mut self) -> Result<Peers, Error> {
        Ok(Peers {
            target: self.connected.target.clone(),
            snapshot: self.id.clone(),
            first: self.connected.session.fingerprint()?,
            lock_timeout: self.lock_timeout,
        })
    }
}

/// A snapshot and what is to be dumped under it.
pub struct Resolved {
    pub snapshot: Snapshot,
    pub selected: Selected,
}

/// Opens further sessions, each proven to be on the server of the first: on another one a
/// snapshot of the same name would be another snapshot, and nothing that is seen there would
/// prove anything.
///
/// A new session reads catalogs, already in its start. Somebody who wants one of them for himself
/// alone (`VACUUM FULL pg_class`) waits for the end of our transactions, and the new session for
/// him: a cycle in which we are a part that the server does not see. So no new session is waited
/// for without an end.
#[derive(Clone)]
pub struct Peers {
    target: Target,
    snapshot: SnapshotId,
    first: Fingerprint,
    lock_timeout: Duration,
}

impl Peers {
    /// A session outside the snapshot.
    pub fn outside(&self) -> Result<Session, Error> {
        // For the way, and for what else a server does before it says that a session is there.
        const MORE: Duration = Duration::from_secs(2);
        let client = self.target.connect(self.lock_timeout.saturating_add(MORE))?;
        let mut session = Session::start_within(client, self.lock_timeout)?;
        if session.sees(&self.first)? { Ok(session) } else { Err(Error::OtherServer) }
    }

    /// A session under the snapshot.
    pub fn under_snapshot(&self) -> Result<Session, Error> {
        let mut session = self.outside()?;
        session.begin_with_snapshot(&self.snapshot)?;
        Ok(session)
    }
}
