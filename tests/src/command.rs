//! Running programs: bounded, with all output kept, and the scene printed when they fail.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::wait::poll;
use crate::{Cluster, server_log};

/// How long a program may run before it is killed and the test fails.
const LIMIT: Duration = Duration::from_secs(300);

/// A program to run against a cluster.
pub struct Program {
    command: Command,
    log_path: PathBuf,
}

impl Program {
    /// A program in whose environment the cluster's programs come first in `PATH` and nothing
    /// says where or as whom to connect.
    pub(crate) fn new(cluster: &Cluster, program: impl AsRef<OsStr>) -> Self {
        Self::of(cluster, Command::new(program))
    }

    /// As [`new`](Self::new), for a command that is there.
    pub(crate) fn of(cluster: &Cluster, mut command: Command) -> Self {
        for (variable, _) in std::env::vars_os() {
            let name = variable.to_string_lossy();
            if name.starts_with("PG") || name.starts_with("STILLPOINT_") {
                command.env_remove(&variable);
            }
        }
        let mut path = OsString::from(cluster.bindir());
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null());
        Self { command, log_path: cluster.log_path() }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Adds the options by which every client program finds a cluster's database.
    #[must_use]
    pub(crate) fn connected_to(self, cluster: &Cluster, database: &str) -> Self {
        let port = cluster.port().to_string();
        self.arg("-h").arg(cluster.host()).args(["-p", &port, "-U", "postgres", "-d", database])
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets the directory in which the program runs.
    #[must_use]
    pub fn current_directory(mut self, directory: impl AsRef<Path>) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Gives it a file to read from; without one, there is nothing to be read.
    #[must_use]
    pub fn stdin(mut self, file: File) -> Self {
        self.command.stdin(file);
        self
    }

    /// Runs the program to its end.
    #[track_caller]
    #[must_use]
    pub fn run(self) -> Finished {
        self.spawn().wait()
    }

    /// Starts the program.
    #[track_caller]
    #[must_use]
    pub fn spawn(mut self) -> Running {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let command_line = command_line(&self.command);
        let mut child = self
            .command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {command_line}: {error}"));
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Running { child: Some(child), stdout, stderr, command_line, log_path: self.log_path }
    }
}

/// A program that runs. Dropping it kills it.
pub struct Running {
    child: Option<Child>,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    command_line: String,
    log_path: PathBuf,
}

impl Running {
    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Whether the program has ended.
    pub fn has_ended(&mut self) -> bool {
        let child = self.child.as_mut().expect("the child is there until it is waited for");
        child.try_wait().expect("the program is our child").is_some()
    }

    /// Waits for the program's end; one that takes minutes is killed, and the test fails.
    #[track_caller]
    #[must_use]
    pub fn wait(mut self) -> Finished {
        let mut child = self.child.take().expect("a program is waited for once");
        let status = poll(LIMIT, || child.try_wait().expect("the program is our child"));
        if status.is_none() {
            let _ = child.kill();
        }
        let killed = child.wait().expect("the program is our child");
        let finished = Finished {
            status: status.unwrap_or(killed),
            stdout: gather(self.stdout.take()),
            stderr: gather(self.stderr.take()),
            command_line: std::mem::take(&mut self.command_line),
            log_path: std::mem::take(&mut self.log_path),
        };
        assert!(status.is_some(), "not done within {LIMIT:?}\n{}", finished.scene());
        finished
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
            if thread::panicking() {
                eprintln!(
                    "killed: {}\n---- stdout\n{}\n---- stderr\n{}",
                    self.command_line,
                    gather(self.stdout.take()),
                    gather(self.stderr.take())
                );
            }
        }
    }
}

/// A program that has ended, with all it has written.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    command_line: String,
    log_path: PathBuf,
}

impl Finished {
    /// The exit code; `None` after a signal.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Fails unless the program ended with `code`.
    #[track_caller]
    pub fn assert_exit(&self, code: i32) -> &Self {
        assert_eq!(self.code(), Some(code), "unexpected exit status\n{}", self.scene());
        self
    }

    /// Fails if the program wrote to standard error.
    #[track_caller]
    pub fn assert_silent(&self) -> &Self {
        assert!(self.stderr.is_empty(), "standard error is not empty\n{}", self.scene());
        self
    }

    /// Fails unless standard error contains `part`.
    #[track_caller]
    pub fn assert_stderr(&self, part: &str) -> &Self {
        assert!(self.stderr.contains(part), "{part:?} is not in standard error\n{}", self.scene());
        self
    }

    /// Standard output as JSON, which is what `--report json` asks for.
    #[track_caller]
    #[must_use]
    pub fn report(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            panic!("standard output is not JSON: {error}\n{}", self.scene())
        })
    }

    /// Command line, status, output and the tail of the server's log.
    #[must_use]
    pub fn scene(&self) -> String {
        let mut scene = format!("---- command\n{}\n---- {}\n", self.command_line, self.status);
        let log = server_log::tail(&self.log_path);
        for (title, text) in
            [("stdout", &self.stdout), ("stderr", &self.stderr), ("server log", &log)]
        {
            let _ = writeln!(scene, "---- {title}\n{}", text.trim_end());
        }
        scene
    }
}

/// Reads a pipe to its end, so that the program never waits for us.
fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

fn gather(reader: Option<JoinHandle<Vec<u8>>>) -> String {
    let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn command_line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        let _ = write!(line, " {}", argument.to_string_lossy());
    }
    line
}
