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
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

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
    /// Its standard error, whole; it comes when the program ends.
    messages: Receiver<io::Result<Vec<u8>>>,
}

/// How it ended.
pub enum End {
    /// It has written its archive; these are its warnings.
    Done(String),
    /// It has failed, with these words.
    Failed(String),
    /// It was ended, since it waited for these sessions.
    Blocked(Vec<String>),
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
    ) -> Result<Self, Error> {
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
        let (sender, messages) = mpsc::channel();
        let stderr = child.take_stderr();
        std::thread::Builder::new()
            .name("pg_dump messages".into())
            .spawn(move || {
                let mut messages = Vec::new();
                let read = stderr.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut messages));
                // Nobody listens any more if the dump has failed in the meantime.
                let _ = sender.send(read.map(|_| messages));
            })
            .map_err(failed)?;
        Ok(Self { child, path: program.path.clone(), application: application.into(), messages })
    }

    /// Waits for its end, but no longer than `lock_timeout` for any lock.
    pub fn watch(&mut self, session: &mut Session, lock_timeout: Duration) -> Result<End, Error> {
        let interval = WATCH_INTERVAL.min(lock_timeout);
        let mut blocked_since = None;
        loop {
            match self.messages.recv_timeout(interval) {
                Ok(messages) => return self.end(messages),
                Err(RecvTimeoutError::Disconnected) => return self.end(Ok(Vec::new())),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let blockers = session.blockers_of(&self.application)?;
            if blockers.is_empty() {
                blocked_since = None;
            } else if blocked_since.get_or_insert_with(Instant::now).elapsed() >= lock_timeout {
                // Dropping the child ends it.
                return Ok(End::Blocked(blockers.iter().map(ToString::to_string).collect()));
            }
        }
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
