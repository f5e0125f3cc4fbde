//! What must not outlive us: queries on the server, programs that we start, an unfinished archive.
//!
//! SIGINT, SIGTERM and SIGHUP end the process with 128 + their number. Before that, queries are
//! cancelled (a backend that waits for a lock would not notice that we have gone), children are
//! ended and the unfinished archive is removed. Where we only hold something for a command of the
//! user's, that one is ended first, and what we hold is held for it until then.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::durable::{self, DurableError, with_suffix};
use crate::wire::{self, CancelToken};

static ALIVE: Mutex<Alive> = Mutex::new(Alive {
    children: Vec::new(),
    sessions: Vec::new(),
    next: 0,
    partial: None,
    served: None,
});

struct Alive {
    children: Vec<u32>,
    sessions: Vec<(u64, CancelToken)>,
    next: u64,
    partial: Option<PathBuf>,
    served: Option<Served>,
}

/// A command of the user's that runs, for which we hold something.
struct Served {
    command: u32,
    /// The signal by which it was told to end, and when.
    told: Option<(i32, Instant)>,
}

/// What comes within this time is the same signal once more: `timeout` sends it to the process and
/// then to its group.
const ECHO: Duration = Duration::from_secs(1);

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

/// A command of the user's, for which we hold something while it runs. A signal ends it first, and
/// us when it has ended; another one ends us at once.
#[derive(Debug)]
pub struct ServedCommand(Child);

impl ServedCommand {
    /// Starts the command.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let mut alive = alive();
        let child = command.spawn()?;
        alive.children.push(child.id());
        alive.served = Some(Served { command: child.id(), told: None });
        Ok(Self(Child(child)))
    }

    /// Waits for its end. Gives the signal, too, if it was one that ended it by way of us.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn wait(mut self) -> io::Result<(ExitStatus, Option<i32>)> {
        let status = self.0.wait();
        let served = alive().served.take();
        Ok((status?, served.and_then(|served| served.told).map(|(signal, _)| signal)))
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
        // A signal that has come takes care of it, and never gives the lock back.
        let mut alive = alive();
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("could not remove \"{}\": {error}", self.0.display());
        }
        alive.partial = None;
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
        for signal in signals.forever() {
            if !is_passed_on(signal) {
                end_by(signal);
            }
        }
    })?;
    Ok(())
}

/// Tells the command that we serve, if there is one, to end. Who cannot wait until it has ended
/// sends another signal.
fn is_passed_on(signal: i32) -> bool {
    let mut alive = alive();
    let Some(Served { command, told }) = &mut alive.served else { return false };
    match told {
        Some((_, at)) => at.elapsed() < ECHO,
        None => {
            *told = Some((signal, Instant::now()));
            terminate(*command);
            true
        }
    }
}

fn end_by(signal: i32) -> ! {
    // The lock is never given back: nobody starts another child from here on.
    let alive = alive();
    for child in &alive.children {
        terminate(*child);
    }
    let removed = alive.partial.as_deref().map(remove_for_good);
    wire::cancel(alive.sessions.iter().map(|(_, token)| token.clone()));
    match removed {
        Some(Ok(())) => tracing::error!("interrupted by signal {signal}; nothing was kept"),
        Some(Err((left, error))) => tracing::error!(
            "interrupted by signal {signal}; could not remove \"{}\": {error}",
            left.display()
        ),
        // A restore has no archive of its own, and what it has loaded stays loaded.
        None => tracing::error!("interrupted by signal {signal}"),
    }
    std::process::exit(128 + signal);
}

/// Removes a directory to which others may still add files. All of them open these by their
/// path, so it is given another name first; without that, the directory could be filled as fast
/// as it is emptied. Where it cannot be removed, tells what is left and why.
fn remove_for_good(directory: &Path) -> Result<(), (PathBuf, io::Error)> {
    let aside = with_suffix(directory, &format!(".{}.removed", std::process::id()));
    let path = match std::fs::rename(directory, &aside) {
        Ok(()) => &*aside,
        Err(_) => directory,
    };
    let mut tries = 0;
    loop {
        // A file whose path was looked up before the directory had its new name may still come.
        match std::fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if tries == 20 => return Err((path.to_owned(), error)),
            Err(_) => tries += 1,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_removed_although_others_go_on_adding_files_to_it() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let directory = parent.path().join("archive.partial");
        std::fs::create_dir(&directory).expect("a directory");
        let add = |name: String| std::fs::File::create_new(directory.join(name));
        for number in 0..1000 {
            add(format!("early {number}")).expect("a file");
        }
        std::thread::scope(|scope| {
            let workers = [0, 1].map(|worker| {
                scope.spawn(move || {
                    let mut names = (0..).map(|number| format!("late {worker} {number}"));
                    names.find_map(|name| add(name).err())
                })
            });
            remove_for_good(&directory).expect("nothing is left");
            for worker in workers {
                let error = worker.join().expect("a worker").expect("the end of its files");
                assert_eq!(error.kind(), io::ErrorKind::NotFound);
            }
        });
        assert_eq!(std::fs::read_dir(parent.path()).expect("a directory").count(), 0);
    }
}
