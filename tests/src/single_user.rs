//! The server in single-user mode: one process, which reads statements from its input.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::template::Installation;
use crate::{Cluster, keeper};

/// A server in single-user mode. Dropping it kills it.
pub struct SingleUser {
    server: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Cluster {
    /// Starts the server of a cluster that was stopped in single-user mode, with a setting that
    /// wins over the configuration's.
    #[track_caller]
    #[must_use]
    pub fn single_user(&self, setting: &str, database: &str) -> SingleUser {
        assert!(!self.is_running(), "the server is running");
        let log = OpenOptions::new().create(true).append(true).open(self.log_path());
        let mut command = Installation::get().server_program("postgres");
        command.args(["--single", "-c", setting, "-D"]).arg(self.data_directory()).arg(database);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(log.expect("the server's log can be opened"));
        let mut server = keeper::spawn(command).expect("setpriv runs");
        let input = server.stdin.take();
        let output = server.stdout.take().expect("its output is ours");
        SingleUser { server, input, output: BufReader::new(output) }
    }
}

impl SingleUser {
    /// Runs a statement, which must be one line, to its end.
    #[track_caller]
    pub fn exec(&mut self, sql: &str) {
        const DONE: &str = "that was done";
        let input = self.input.as_mut().expect("its input is open");
        writeln!(input, "{sql}\nSELECT '{DONE}'").expect("it reads its input");
        let mut line = String::new();
        while !line.contains(DONE) {
            line.clear();
            let read = self.output.read_line(&mut line).expect("its output is text");
            assert!(read > 0, "single-user mode has ended early: {sql}");
        }
    }

    /// Ends it as the end of its input does: a checkpoint is made.
    #[track_caller]
    pub fn quit(mut self) {
        drop(self.input.take());
        let status = self.server.wait().expect("the server is our child");
        assert!(status.success(), "{status}");
    }

    /// Kills it.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for SingleUser {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
