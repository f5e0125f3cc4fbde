//! What must not outlive us: queries on the server, programs that we start, an unfinished archive.
//!
//! SIGINT, SIGTERM and SIGHUP end the process with 128 + their number. Before that, queries are
//! cancelled (a backend that waits for a lock would not notice that we have gone), children are
//! ended and the unfinished archive is removed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, ExitStatus};
use std::sync::mpsc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::durable::{self, DurableError};
use crate::wire::CancelToken;

static ALIVE: Mutex<Alive> =
    Mutex::new(Alive { children: Vec::new(), sessions: Vec::new(), next: 0, partial: None });

struct Alive {
    children: Vec<u32>,
    sessions: Vec<(u64, CancelToken)>,
    next: u64,
    partial: Option<PathBuf>,
}

fn alive() -> MutexGuard<'static, Alive> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child process that is ended when it is dropped or when a signal ends us.
#[derive(Debug)]
pub struct Child(std::process::Child);

impl Child {
    /// Starts the command.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        // The lock is held from before the start, so that no signal comes in between.
        let mut alive = alive();
        let child = command.spawn()?;
        alive.children.push(child.id());
        Ok(Self(child))
    }

    /// Takes its standard error, if that was piped.
    pub const fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.0.stderr.take()
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.0.wait()?;
        self.forget();
        Ok(status)
    }

    fn forget(&self) {
        // Its number may be given to a process of somebody else's from now on.
        let id = self.0.id();
        alive().children.retain(|child| *child != id);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // Asked politely, pg_dump and pg_restore cancel their queries first. They have a
            // second for that. It may also have ended by itself: then there is nothing to do.
            terminate(self.0.id());
            for _ in 0..100 {
                if !matches!(self.0.try_wait(), Ok(None)) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
        self.forget();
    }
}

fn terminate(child: u32) {
    if let Some(pid) = i32::try_from(child).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// A session whose query is cancelled if a signal ends us; until it is dropped.
#[derive(Debug)]
pub struct Cancellable(u64);

impl Cancellable {
    /// Takes note of the session.
    #[must_use]
    pub fn register(token: CancelToken) -> Self {
        let mut alive = alive();
        let id = alive.next;
        alive.next += 1;
        alive.sessions.push((id, token));
        Self(id)
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        alive().sessions.retain(|(id, _)| *id != self.0);
    }
}

/// An archive that is being written; removed when it is dropped, unless it was kept.
#[derive(Debug)]
pub struct Partial(PathBuf);

impl Partial {
    /// Takes care of a directory that the caller has just made.
    #[must_use]
    pub fn guard(path: PathBuf) -> Self {
        alive().partial = Some(path.clone());
        Self(path)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes what an attempt has written; the next one starts from nothing. The directory
    /// itself stays, and with it the claim to its name.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn clear(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.0)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            } else {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Gives the archive, which is whole and synced, its name: nothing is left to be removed.
    ///
    /// # Errors
    ///
    /// As [`durable::publish`].
    pub fn publish(mut self, name: &Path) -> Result<(), DurableError> {
        // A signal waits until this is done, and then finds an archive that is there to stay.
        {
            let mut alive = alive();
            let published = durable::publish(&self.0, name);
            if published.is_ok() {
                alive.partial = None;
            }
            published
        }?;
        self.0 = PathBuf::new();
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.0.as_os_str().is_empty() {
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("could not remove \"{}\": {error}", self.0.display());
        }
        alive().partial = None;
    }
}

/// Handles signals in a thread of their own from now on.
///
/// # Errors
///
/// What the system says.
pub fn handle_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            end_by(signal);
        }
    })?;
    Ok(())
}

/// Cancels the queries, but does not wait long for a server that cannot be reached.
fn cancel_all(sessions: &[(u64, CancelToken)]) {
    const PATIENCE: Duration = Duration::from_secs(2);
    let (done, all_done) = mpsc::channel::<()>();
    for (_, token) in sessions {
        let (token, done) = (token.clone(), done.clone());
        let cancel = move || {
            token.cancel();
            drop(done);
        };
        // Without a thread for it the query runs on until it notices that we have gone.
        let _ = std::thread::Builder::new().name("cancel".into()).spawn(cancel);
    }
    drop(done);
    // Nothing is ever sent: the last thread that ends closes the channel.
    let _ = all_done.recv_timeout(PATIENCE);
}

fn end_by(signal: i32) -> ! {
    // The lock is never given back: nobody starts another child from here on.
    let alive = alive();
    for child in &alive.children {
        terminate(*child);
    }
    if let Some(partial) = &alive.partial {
        // Workers and the child may still add a file while we remove the others.
        for _ in 0..20 {
            let _ = std::fs::remove_dir_all(partial);
            if !partial.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    cancel_all(&alive.sessions);
    // A restore has no archive of its own, and what it has loaded stays loaded.
    let kept = if alive.partial.is_some() { "; nothing was kept" } else { "" };
    tracing::error!("interrupted by signal {signal}{kept}");
    std::process::exit(128 + signal);
}
