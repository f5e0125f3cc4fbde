//! Clusters that are made of others: standbys, restored backups, copies.

use crate::Cluster;
use crate::template::{Installation, copy};

impl Cluster {
    /// Starts a standby of this cluster, which streams from it and answers queries.
    #[track_caller]
    #[must_use]
    pub fn start_standby(&self) -> Self {
        let mut standby = self.base_backup();
        standby.follow(self);
        standby.start_server();
        standby
    }

    /// A copy of this cluster as `pg_basebackup` makes it, which is not started.
    #[track_caller]
    #[must_use]
    pub fn base_backup(&self) -> Self {
        self.beside(|data| {
            let output = Installation::get()
                .server_program("pg_basebackup")
                .args(["-U", "postgres", "-p", &self.port().to_string(), "-h"])
                .arg(self.host())
                .args(["--checkpoint=fast", "--no-sync", "-D"])
                .arg(data)
                .output()
                .expect("setpriv runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        })
    }

    /// A copy of this cluster, whose server was stopped, file by file. It is not started.
    #[track_caller]
    #[must_use]
    pub fn copy(&self) -> Self {
        assert!(!self.is_running(), "the server is running");
        self.beside(|data| copy(self.data_directory(), data))
    }

    /// Makes this cluster, whose server was stopped, a standby of `primary` from its next start
    /// on.
    pub fn follow(&self, primary: &Self) {
        let source = primary.connection_string("postgres");
        self.append_setting(&format!("primary_conninfo = '{source}'"));
        // What a reader on the standby holds must not be taken from it.
        self.append_setting("hot_standby_feedback = on");
        self.append_setting("wal_receiver_status_interval = 1");
        self.append_setting("max_standby_streaming_delay = -1");
        self.put_file("standby.signal", "");
        // When either end goes first.
        primary.allow_log("connection to client lost");
        primary.allow_log("the database system is shutting down");
        // That is said of a session that ends before it has begun.
        primary.allow_log("canceling authentication due to timeout");
        primary.allow_log("the database system is starting up");
        self.allow_log("terminating walreceiver process");
        self.allow_log("could not receive data from WAL stream");
        self.allow_log("could not send end-of-streaming message to primary");
        self.allow_log("could not connect to the primary server");
        self.allow_log("from the primary server: server closed the connection");
    }
}
