//! A temporary PostgreSQL cluster.

use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use postgres::Config;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::server_log::{self, ServerLog};
use crate::session::describe;
use crate::template::{Installation, copy_template, initdb};
use crate::wait::poll;
use crate::{Connector, DEADLINE, Session, keeper};

const PREFIX: &str = "stillpoint-test-";

/// `sun_path` holds 108 bytes with its end.
const SOCKET_PATH_LIMIT: usize = 107;

/// What every cluster of the tests is set to; a test's own lines come after and win.
const SETTINGS: &str = "\
fsync = off
synchronous_commit = off
full_page_writes = off
autovacuum = off
max_connections = 100
shared_buffers = 32MB
max_prepared_transactions = 10
log_line_prefix = '%m [%p] %q%a %d '
log_min_messages = warning
log_lock_waits = off
lc_messages = 'C'
timezone = 'UTC'
";

/// How a cluster is to be started.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    lines: String,
    tcp: bool,
    in_memory: bool,
    own_identifier: bool,
}

impl ClusterOptions {
    /// Adds a line to `postgresql.conf`, for example `shared_preload_libraries = 'stillpoint'`.
    #[must_use]
    pub fn setting(mut self, line: &str) -> Self {
        self.lines.push_str(line);
        self.lines.push('\n');
        self
    }

    /// Loads the extension's library with the server, which is what makes it record.
    #[must_use]
    pub fn preload(self) -> Self {
        self.setting("shared_preload_libraries = 'stillpoint'")
    }

    /// Writes as durably as a server in use, for tests of crashes.
    #[must_use]
    pub fn durable(self) -> Self {
        self.setting("fsync = on")
            .setting("synchronous_commit = on")
            .setting("full_page_writes = on")
    }

    /// Lies in memory where the system has room for that: for measurements of what a file
    /// system would hide.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.in_memory = true;
        self
    }

    /// Has a system identifier of its own; other clusters of the tests are copies of one.
    #[must_use]
    pub fn own_identifier(mut self) -> Self {
        self.own_identifier = true;
        self
    }

    /// Listens on 127.0.0.1 too.
    #[must_use]
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Starts a cluster.
    #[track_caller]
    #[must_use]
    pub fn start(self) -> Cluster {
        Cluster::start_with(&self)
    }
}

/// A running PostgreSQL cluster in a temporary directory, with a port, a socket directory and a
/// log of its own. When it is dropped the server is stopped, the directory removed, and a
/// WARNING, ERROR, FATAL or PANIC in the log that was not allowed fails the test.
pub struct Cluster {
    home: Option<TempDir>,
    data: PathBuf,
    port: u16,
    server: Option<Child>,
    log: Mutex<ServerLog>,
}

impl Cluster {
    /// Starts a cluster with the harness's settings.
    #[track_caller]
    #[must_use]
    pub fn start() -> Self {
        ClusterOptions::default().start()
    }

    /// Starts a cluster on which the extension is used as it is meant to be: with its library
    /// preloaded.
    #[track_caller]
    #[must_use]
    pub fn preloaded() -> Self {
        ClusterOptions::default().preload().start()
    }

    #[track_caller]
    fn start_with(options: &ClusterOptions) -> Self {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(remove_orphans);
        let home = make_home(if options.in_memory { memory() } else { std::env::temp_dir() });
        let port = free_port();
        let data = home.path().join("data");
        if options.own_identifier {
            initdb(&data);
        } else {
            copy_template(home.path(), &data);
        }
        let listen = if options.tcp { "127.0.0.1" } else { "" };
        let settings = format!(
            "{SETTINGS}port = {port}\nlisten_addresses = '{listen}'\n\
             unix_socket_directories = '{}'\n{}",
            home.path().display(),
            options.lines
        );
        append(&data.join("postgresql.conf"), &settings);
        let log = Mutex::new(ServerLog::new(home.path().join("server.log")));
        let mut cluster = Self { home: Some(home), data, port, server: None, log };
        cluster.start_server();
        cluster
    }

    /// A cluster whose data directory `make` makes, at the path that it is given. It differs from
    /// this one in port and directory, and is not started.
    #[track_caller]
    pub(crate) fn beside(&self, make: impl FnOnce(&Path)) -> Self {
        let home = make_home(std::env::temp_dir());
        let port = free_port();
        let data = home.path().join("data");
        make(&data);
        let log = Mutex::new(ServerLog::new(home.path().join("server.log")));
        let host = home.path().display();
        let settings = format!("port = {port}\nunix_socket_directories = '{host}'\n");
        append(&data.join("postgresql.conf"), &settings);
        Self { home: Some(home), data, port, server: None, log }
    }

    /// Starts a server on a data directory that `fill` makes: a backup that is restored, with the
    /// settings of its source.
    #[track_caller]
    #[must_use]
    pub fn start_restored(fill: impl FnOnce(&Path)) -> Self {
        let home = make_home(std::env::temp_dir());
        let port = free_port();
        let data = home.path().join("data");
        fill(&data);
        let settings =
            format!("port = {port}\nunix_socket_directories = '{}'\n", home.path().display());
        append(&data.join("postgresql.conf"), &settings);
        give_all_to_server(home.path());
        let log = Mutex::new(ServerLog::new(home.path().join("server.log")));
        let mut cluster = Self { home: Some(home), data, port, server: None, log };
        cluster.start_server();
        cluster
    }

    /// Starts the server of a cluster that was stopped, and waits until it accepts sessions.
    #[track_caller]
    pub fn start_server(&mut self) {
        assert!(self.server.is_none(), "the server is running");
        let log = OpenOptions::new().create(true).append(true).open(self.log_path());
        let log = log.expect("the server's log can be opened");
        let mut command = Installation::get().server_program("postgres");
        command.arg("-D").arg(&self.data).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("the log's descriptor can be copied")).stderr(log);
        let mut server = keeper::spawn(command).expect("setpriv runs");
        // The status is in the file's last line. Connecting to find out would log a FATAL.
        let status_file = self.data.join("postmaster.pid");
        let ready = poll(DEADLINE, || {
            if server.try_wait().expect("the server is our child").is_some() {
                return Some(false);
            }
            let status = fs::read_to_string(&status_file).unwrap_or_default();
            let mut lines = status.lines();
            // A file of the server before this one (after a crash) is not an answer.
            let own = lines.next().and_then(|pid| pid.parse().ok()) == Some(server.id());
            (own && lines.last().map(str::trim) == Some("ready")).then_some(true)
        });
        if ready != Some(true) {
            let _ = server.kill();
            let _ = server.wait();
            panic!("the server did not start; its log:\n{}", server_log::tail(&self.log_path()));
        }
        self.server = Some(server);
    }

    /// Whether the server was started, and not stopped since.
    pub(crate) fn is_running(&self) -> bool {
        self.server.is_some()
    }

    /// Stops the server as `pg_ctl stop -m fast` does: sessions are ended, a checkpoint is made.
    #[track_caller]
    pub fn stop(&mut self) {
        self.end_server(Signal::INT);
    }

    /// Stops the server as `pg_ctl stop -m immediate` does: a crash; the next start recovers.
    #[track_caller]
    pub fn stop_immediate(&mut self) {
        // Before 14 a session cannot tell the two apart, and warns.
        self.allow_log("terminating connection because of crash of another server process");
        self.end_server(Signal::QUIT);
    }

    /// Kills the server's first process as the kernel does when memory is short. Gives back when
    /// all others have noticed, and ended. One that has died in the midst of something may keep the
    /// rest for ever, since nobody is there to clean up: those are killed, as init systems do it.
    #[track_caller]
    pub fn kill(&mut self) {
        const GRACE: Duration = Duration::from_secs(5);

        self.allow_log("terminating connection due to unexpected postmaster exit");
        self.end_server(Signal::KILL);
        let are_over = || self.processes().is_empty().then_some(());
        if poll(GRACE, are_over).is_none() {
            for process in self.processes() {
                // It may have ended by now.
                let _ = kill_process(process, Signal::KILL);
            }
        }
        assert!(poll(DEADLINE, are_over).is_some(), "a server's processes live longer than it");
    }

    /// The processes that are in the data directory: all of the server.
    fn processes(&self) -> Vec<Pid> {
        let all = fs::read_dir("/proc").expect("/proc").flatten();
        let here = all.filter(|process| {
            fs::read_link(process.path().join("cwd")).is_ok_and(|directory| directory == self.data)
        });
        here.filter_map(|process| Pid::from_raw(process.file_name().to_str()?.parse().ok()?))
            .collect()
    }

    /// Stops (fast) and starts the server.
    #[track_caller]
    pub fn restart(&mut self) {
        self.stop();
        self.start_server();
    }

    /// Restarts the server with a setting that it reads at its start.
    #[track_caller]
    pub fn restart_with(&mut self, setting: &str) {
        self.append_setting(setting);
        self.restart();
    }

    /// Kills a backend as the kernel does when memory is short: the server ends all sessions and
    /// recovers. Gives back when it accepts sessions again.
    #[track_caller]
    pub fn kill_backend(&self, backend: i32) {
        const READY: &str = "database system is ready to accept connections";
        self.allow_log("terminating connection because of crash of another server process");
        self.allow_log("the database system is in recovery mode");
        let log_path = self.log_path();
        let times_ready =
            || fs::read_to_string(&log_path).unwrap_or_default().matches(READY).count();
        let before = times_ready();
        let pid = Pid::from_raw(backend).expect("a process id is positive");
        kill_process(pid, Signal::KILL).expect("the backend is there");
        if poll(DEADLINE, || (times_ready() > before).then_some(())).is_none() {
            panic!("the server did not recover; its log:\n{}", server_log::tail(&log_path));
        }
    }

    fn end_server(&mut self, signal: Signal) {
        let Some(mut server) = self.server.take() else { return };
        let pid = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process id is positive"), signal).expect("the server is ours");
        if poll(DEADLINE, || server.try_wait().expect("the server is our child")).is_none() {
            let _ = server.kill();
            let _ = server.wait();
            let tail = server_log::tail(&self.log_path());
            if !thread::panicking() {
                panic!("the server did not stop; its log:\n{tail}");
            }
        }
    }

    /// Appends a line to `postgresql.conf`; takes effect with the next start or reload.
    pub fn append_setting(&self, line: &str) {
        append(&self.data.join("postgresql.conf"), &format!("{line}\n"));
    }

    /// Appends a line at the top of `pg_hba.conf`, where it wins over the others; takes effect
    /// with the next start or reload.
    pub fn prepend_hba(&self, line: &str) {
        let path = self.data.join("pg_hba.conf");
        let rest = fs::read_to_string(&path).expect("pg_hba.conf can be read");
        fs::write(&path, format!("{line}\n{rest}")).expect("pg_hba.conf can be written");
    }

    /// Writes a file into the data directory, such as `standby.signal`.
    pub fn put_file(&self, name: &str, text: &str) {
        let path = self.data.join(name);
        fs::write(&path, text).expect("the data directory is writable");
        give_to_server(&path);
    }

    /// The directory of the server's programs.
    #[must_use]
    pub fn bindir(&self) -> &'static Path {
        &Installation::get().bindir
    }

    /// The data directory.
    #[must_use]
    pub fn data_directory(&self) -> &Path {
        &self.data
    }

    /// The directory of the server's socket: the `host` to connect to.
    #[must_use]
    pub fn host(&self) -> &Path {
        self.home.as_ref().expect("a cluster has its directory to its end").path()
    }

    /// The port, which is part of the socket's name.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's log.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.log().path().clone()
    }

    /// The server's major version.
    #[must_use]
    pub fn major_version(&self) -> u32 {
        Installation::get().major_version()
    }

    /// The connection string of a database, for another server that is to connect.
    #[must_use]
    pub fn connection_string(&self, database: &str) -> String {
        format!("host={} port={} user=postgres dbname={database}", self.host().display(), self.port)
    }

    /// Creates a tablespace in a directory of its own.
    #[track_caller]
    pub fn create_tablespace(&self, name: &str) {
        let directory = self.host().join(format!("tablespace-{name}"));
        fs::create_dir(&directory).expect("the cluster's home is writable");
        give_to_server(&directory);
        let name = quote_identifier(name);
        self.session("postgres")
            .exec(&format!("CREATE TABLESPACE {name} LOCATION '{}'", directory.display()));
    }

    /// Creates a database.
    #[track_caller]
    pub fn create_database(&self, name: &str) {
        self.session("postgres").exec(&format!("CREATE DATABASE {}", quote_identifier(name)));
    }

    /// Drops a database; its sessions are ended.
    #[track_caller]
    pub fn drop_database(&self, name: &str) {
        let name = quote_identifier(name);
        self.session("postgres").exec(&format!("DROP DATABASE {name} WITH (FORCE)"));
    }

    /// Creates the extension in a database. Its files have to be installed.
    #[track_caller]
    pub fn create_extension(&self, database: &str) {
        let control = Installation::get().sharedir.join("extension/stillpoint.control");
        assert!(
            control.exists(),
            "the extension is not installed: {} is missing (make install)",
            control.display()
        );
        self.session(database).exec("CREATE EXTENSION stillpoint");
    }

    /// Connects as the superuser.
    #[track_caller]
    #[must_use]
    pub fn session(&self, database: &str) -> Session {
        self.session_as(database, "postgres")
    }

    /// Connects as a role.
    #[track_caller]
    #[must_use]
    pub fn session_as(&self, database: &str, role: &str) -> Session {
        match self.connector(database).role(role).connect() {
            Ok(session) => session,
            Err(error) => panic!("cannot connect to \"{database}\": {}", describe(&error)),
        }
    }

    /// What it takes to connect to a database as the superuser, for whoever does so while others
    /// stop and start the server.
    #[must_use]
    pub fn connector(&self, database: &str) -> Connector {
        let mut config = Config::new();
        config.host_path(self.host()).port(self.port).user("postgres").dbname(database);
        // A statement that waits for what never comes fails, and does not hang the test.
        config.options("-c statement_timeout=120s").application_name("test");
        Connector::new(config)
    }

    /// Expects log entries that contain `part`.
    pub fn allow_log(&self, part: &str) {
        self.log().allow(part);
    }

    /// Expects that statements are cancelled by their client, which may have sent others behind
    /// them, and may have gone before it could be told so.
    pub fn allow_cancelled_statements(&self) {
        self.allow_log("canceling statement due to user request");
        self.allow_log("current transaction is aborted, commands ignored until end");
        self.allow_log("connection to client lost");
    }

    /// Fails if the log holds an unexpected entry since the last call. What was allowed until
    /// now is not allowed any more. The end of the cluster does the same.
    #[track_caller]
    pub fn check_log(&self) {
        let found = self.log().unexpected();
        assert!(found.is_empty(), "unexpected in the server's log:\n{}", found.join("\n"));
    }

    /// Expects whatever the log holds so far: for a run that has failed and been reported.
    pub fn forget_log(&self) {
        let _ = self.log().unexpected();
    }

    fn log(&self) -> MutexGuard<'_, ServerLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end_server(Signal::INT);
        let found = self.log().unexpected();
        if thread::panicking() {
            eprintln!("server log, the last lines:\n{}", server_log::tail(&self.log_path()));
        }
        if let Some(home) = self.home.take() {
            if std::env::var_os("STILLPOINT_TEST_KEEP").is_some() {
                eprintln!("kept: {}", home.keep().display());
            } else {
                // The server's user owns it; a failure to remove it is no failure of the test.
                let _ = home.close();
            }
        }
        if !thread::panicking() {
            assert!(found.is_empty(), "unexpected in the server's log:\n{}", found.join("\n"));
        }
    }
}

/// A new directory that the server's user owns, with a path short enough for a socket in it.
fn make_home(mut parent: PathBuf) -> TempDir {
    let prefix = format!("{PREFIX}{}-", std::process::id());
    if parent.as_os_str().len() + prefix.len() + "/123456/.s.PGSQL.65535".len() > SOCKET_PATH_LIMIT
    {
        parent = "/tmp".into();
    }
    let home = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent);
    let home = home.expect("a temporary directory can be made");
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    give_to_server(home.path());
    home
}

/// A directory whose files are in memory, if the system has one.
fn memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// Makes the user that servers run as the owner of a path.
fn give_to_server(path: &Path) {
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = postgres_user();
        chown(path, Some(uid), Some(gid)).expect("root can give it away");
    }
}

/// The same for a directory and all that is in it.
fn give_all_to_server(path: &Path) {
    give_to_server(path);
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).expect("the directory can be read") {
            give_all_to_server(&entry.expect("the directory can be read").path());
        }
    }
}

fn postgres_user() -> (u32, u32) {
    let passwd = fs::read_to_string("/etc/passwd").expect("/etc/passwd can be read");
    let line = passwd.lines().find(|line| line.starts_with("postgres:"));
    let fields: Vec<_> = line.expect("there is a user \"postgres\"").split(':').collect();
    let id = |i: usize| fields[i].parse().expect("ids in /etc/passwd are numbers");
    (id(2), id(3))
}

/// Removes the directories of test processes that were killed; their servers have ended with
/// them.
fn remove_orphans() {
    let directories = [std::env::temp_dir(), memory()].map(fs::read_dir);
    for entry in directories.into_iter().flatten().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}

fn append(path: &Path, text: &str) {
    use std::io::Write as _;
    let file = OpenOptions::new().append(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

/// A name as SQL text.
pub(crate) fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
