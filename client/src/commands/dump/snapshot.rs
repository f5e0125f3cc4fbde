//! The first stages of an attempt: a session, its snapshot, and what is to be dumped under it.

use std::time::Instant;

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
    pub fn snapshot(mut self) -> Result<Snapshot, Error> {
        self.session.begin()?;
        let id = self.session.export_snapshot()?;
        Ok(Snapshot { taken_at: OffsetDateTime::now_utc(), id, connected: self })
    }
}

/// A snapshot that others can import while the session's transaction lives.
pub struct Snapshot {
    pub connected: Connected,
    pub id: SnapshotId,
    pub taken_at: OffsetDateTime,
}

impl Snapshot {
    /// Finds out what the user's words mean under this snapshot.
    pub fn resolve(
        mut self,
        patterns: &Patterns,
        timings: &mut Timings,
    ) -> Result<Resolved, Error> {
        let start = Instant::now();
        let selected =
            patterns.resolve(&mut self.connected.session, &self.connected.identity.database)?;
        timings.resolve = start.elapsed();
        Ok(Resolved { snapshot: self, selected })
    }
}

/// A snapshot and the relations that are to be dumped under it.
pub struct Resolved {
    pub snapshot: Snapshot,
    pub selected: Selected,
}

impl Resolved {
    /// The session whose transaction holds the snapshot.
    pub const fn session(&mut self) -> &mut Session {
        &mut self.snapshot.connected.session
    }

    /// Opens a session outside the snapshot, proven to be on the server of the first.
    pub fn second_session(&mut self) -> Result<Session, Error> {
        let first = self.session().fingerprint()?;
        let mut second = Session::start(self.snapshot.connected.target.connect()?)?;
        if second.sees(&first)? { Ok(second) } else { Err(Error::OtherServer) }
    }

    /// Opens a worker's session in the same snapshot, proven to be on the server of the first:
    /// on another one a snapshot of the same name would be another snapshot.
    pub fn worker(&self, first: &Fingerprint) -> Result<Session, Error> {
        let mut session = Session::start(self.snapshot.connected.target.connect()?)?;
        if !session.sees(first)? {
            return Err(Error::OtherServer);
        }
        session.begin_with_snapshot(&self.snapshot.id)?;
        Ok(session)
    }
}
