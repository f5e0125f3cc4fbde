//! `pg_dump` as a child: started, watched, and ended when it waits for too long.
//!
//! Its own `--lock-wait-timeout` covers the tables that it locks by name. It does not cover what
//! its queries wait for, such as a materialized view that is being refreshed. So we watch it from
//! outside, for every lock, and can name who it waits for.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use stillpoint_check::Oid;

use super::Error;
use super::snapshot::Connected;
use crate::interrupt::Child;
use crate::programs::Program;
use crate::server::Session;

/// How often the server is asked whether it waits.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);

/// A running `pg_dump`.
pub struct PgDump {
    child: Child,
    path: PathBuf,
    application: String,
    events: Receiver<Event>,
    start: Instant,
    blocked_since: Option<Instant>,
    /// How it ended, if that was seen before anybody asked.
    end: Option<End>,
}

/// What wakes whoever watches.
enum Event {
    /// The program has closed its standard error, of which this is all: it has ended.
    Closed(io::Result<Vec<u8>>),
    /// Its archive is of no use any more.
    Stop,
}

/// Ends a `pg_dump` from another thread than the one that watches it.
#[derive(Clone)]
pub struct Waker(Sender<Event>);

impl Waker {
    /// Tells the watching thread that the archive is of no use any more.
    pub fn stop(&self) {
        // A program that is watched no more has ended.
        let _ = self.0.send(Event::Stop);
    }
}

/// How it ended.
pub enum End {
    /// It has written its archive; these are its warnings.
    Done(String),
    /// It has failed, with these words.
    Failed(String),
    /// It was ended, since it waited for these sessions.
    Blocked(Vec<String>),
    /// It was ended by its [`Waker`].
    Stopped,
}

/// The `application_name` of the `pg_dump` that this session starts: by it the two can be told
/// to belong together, in the server's views as by ourselves.
pub fn application(connected: &Connected) -> String {
    format!("pg_dump (stillpoint {})", connected.identity.pid)
}

impl PgDump {
    pub fn start(
        program: &Program,
        arguments: &[OsString],
        application: &str,
        password: Option<&[u8]>,
    ) -> Result<(Self, Waker), Error> {
        let failed = |source| Error::Start { program: program.path.clone(), source };
        let mut command = Command::new(&program.path);
        command
            .args(arguments)
            .env("PGAPPNAME", application)
            // Whatever else the connection needs is in the conninfo.
            .env_remove("PGOPTIONS")
            .env_remove("PGSSLMODE")
            .env("LC_MESSAGES", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(password) = password {
            command.env("PGPASSWORD", OsString::from_vec(password.to_vec()));
        }
        let mut child = Child::spawn(&mut command).map_err(failed)?;
        let (sender, events) = mpsc::channel();
        let waker = Waker(sender.clone());
        let stderr = child.take_stderr();
        std::thread::Builder::new()
            .name("pg_dump messages".into())
            .spawn(move || {
                let mut messages = Vec::new();
                let read = stderr.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut messages));
                // Nobody listens any more if the dump has failed in the meantime.
                let _ = sender.send(Event::Closed(read.map(|_| messages)));
            })
            .map_err(failed)?;
        let run = Self {
            child,
            path: program.path.clone(),
            application: application.into(),
            events,
            start: Instant::now(),
            blocked_since: None,
            end: None,
        };
        Ok((run, waker))
    }

    /// How long it has been running.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits until it has locked all the relations and nobody is queued for one of them; gives
    /// false if it has ended, or waited for too long, before that.
    pub fn has_locked(
        &mut self,
        session: &mut Session,
        relations: &[Oid],
        lock_timeout: Duration,
    ) -> Result<bool, Error> {
        let mut pid = None;
        let mut watched = Instant::now();
        loop {
            self.end = self.ended_within(locks_interval(self.elapsed()))?;
            if self.end.is_some() {
                return Ok(false);
            }
            if pid.is_none() {
                pid = session.backend_of(&self.application)?;
            }
            if let Some(pid) = pid
                && session.has_locked_all(pid, relations)?
            {
                return Ok(true);
            }
            if watched.elapsed() >= WATCH_INTERVAL.min(lock_timeout) {
                watched = Instant::now();
                self.end = self.blocked(session, lock_timeout)?;
                if self.end.is_some() {
                    return Ok(false);
                }
            }
        }
    }

    /// Waits for its end, but no longer than `lock_timeout` for any lock.
    pub fn watch(&mut self, session: &mut Session, lock_timeout: Duration) -> Result<End, Error> {
        if let Some(end) = self.end.take() {
            return Ok(end);
        }
        loop {
            if let Some(end) = self.ended_within(WATCH_INTERVAL.min(lock_timeout))? {
                return Ok(end);
            }
            // Where it waits for too long, dropping the child ends it.
            if let Some(end) = self.blocked(session, lock_timeout)? {
                return Ok(end);
            }
        }
    }

    fn ended_within(&mut self, interval: Duration) -> Result<Option<End>, Error> {
        match self.events.recv_timeout(interval) {
            Ok(Event::Closed(messages)) => self.end(messages).map(Some),
            Ok(Event::Stop) => Ok(Some(End::Stopped)),
            Err(RecvTimeoutError::Disconnected) => self.end(Ok(Vec::new())).map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
        }
    }

    /// The end that it is to have if it has waited for too long.
    fn blocked(
        &mut self,
        session: &mut Session,
        lock_timeout: Duration,
    ) -> Result<Option<End>, Error> {
        let mut blockers = session.blockers_of(&self.application)?;
        if blockers.is_empty() && !session.has_session_of(&self.application)? {
            // Its session is being started, and may wait for the catalogs.
            blockers = session.blockers_of_catalogs()?;
        }
        if blockers.is_empty() {
            self.blocked_since = None;
            return Ok(None);
        }
        let since = *self.blocked_since.get_or_insert_with(Instant::now);
        Ok((since.elapsed() >= lock_timeout)
            .then(|| End::Blocked(blockers.iter().map(ToString::to_string).collect())))
    }

    fn end(&mut self, messages: io::Result<Vec<u8>>) -> Result<End, Error> {
        let failed = |source| Error::Start { program: self.path.clone(), source };
        let messages = String::from_utf8_lossy(&messages.map_err(failed)?).trim_end().to_owned();
        let status = self.child.wait().map_err(failed)?;
        Ok(match (status.success(), messages.is_empty()) {
            (true, _) => End::Done(messages),
            (false, false) => End::Failed(messages),
            (false, true) => End::Failed(status.to_string()),
        })
    }
}

/// How long to wait before the server is asked again for the locks of a `pg_dump` that has been
/// running for so long: what is found is then late by a small part of that time, and a
/// `pg_dump` that copies large objects for hours is not asked for hundred times a second.
fn locks_interval(elapsed: Duration) -> Duration {
    const SHORTEST: Duration = Duration::from_millis(10);
    const LONGEST: Duration = Duration::from_secs(1);
    (elapsed / 16).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pg_dump_that_runs_for_long_is_asked_for_its_locks_less_often() {
        let interval = |seconds| locks_interval(Duration::from_secs_f64(seconds)).as_millis();
        assert_eq!([0.0, 0.8, 8.0, 3600.0].map(interval), [10, 50, 500, 1000]);
    }
}
