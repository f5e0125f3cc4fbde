//! The server's own client programs.

use std::path::Path;

use crate::template::Installation;
use crate::{Cluster, Finished, Program};

/// `pg_dump`, connected to a database.
#[must_use]
pub fn pg_dump(cluster: &Cluster, database: &str) -> Program {
    connected(cluster, "pg_dump", database)
}

/// `pg_restore`, connected to a database.
#[must_use]
pub fn pg_restore(cluster: &Cluster, database: &str) -> Program {
    connected(cluster, "pg_restore", database)
}

/// `psql`, connected to a database, without startup file and stopping at the first error.
#[must_use]
pub fn psql(cluster: &Cluster, database: &str) -> Program {
    connected(cluster, "psql", database).args(["-X", "-v", "ON_ERROR_STOP=1"])
}

/// `vacuumdb`, connected to a database.
#[must_use]
pub fn vacuumdb(cluster: &Cluster, database: &str) -> Program {
    connected(cluster, "vacuumdb", database)
}

/// A program that works on data directories, which its server's user has to run.
#[must_use]
pub fn server_program(cluster: &Cluster, name: &str) -> Program {
    Program::of(cluster, Installation::get().server_program(name))
}

/// `pg_amcheck`, which installs what it needs and checks every table, every B-tree, and that each
/// row of the one is in the other. There is none before PostgreSQL 14.
#[must_use]
pub fn pg_amcheck(cluster: &Cluster) -> Program {
    let port = cluster.port().to_string();
    Program::new(cluster, cluster.bindir().join("pg_amcheck")).arg("-h").arg(cluster.host()).args([
        "-p",
        &port,
        "-U",
        "postgres",
        "--all",
        "--install-missing",
        "--heapallindexed",
    ])
}

/// Lets the cluster give out OIDs, and with them numbers of files, from `next` on. The server is
/// restarted, and to the ledger this is another's work on the data: a gap.
#[track_caller]
pub fn set_next_oid(cluster: &mut Cluster, next: u32) {
    cluster.stop();
    let output = Installation::get()
        .server_program("pg_resetwal")
        .args(["-o", &next.to_string(), "-D"])
        .arg(cluster.data_directory())
        .output()
        .expect("setpriv runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    cluster.start_server();
}

/// What a range of the cluster's WAL holds, one record a line, as `pg_waldump` tells it. The
/// range must have been flushed.
#[track_caller]
#[must_use]
pub fn wal_records(cluster: &Cluster, start: &str, end: &str) -> Vec<String> {
    let finished = Program::new(cluster, cluster.bindir().join("pg_waldump"))
        .arg("-p")
        .arg(cluster.data_directory().join("pg_wal"))
        .args(["-s", start, "-e", end])
        .run();
    finished.assert_exit(0);
    finished.stdout.lines().map(str::to_owned).collect()
}

/// `pgbench`, connected to a database.
#[must_use]
pub fn pgbench(cluster: &Cluster, database: &str) -> Program {
    // Its -d was once an option for debugging; the database comes without one.
    Program::new(cluster, cluster.bindir().join("pgbench")).arg("-h").arg(cluster.host()).args([
        "-p",
        &cluster.port().to_string(),
        "-U",
        "postgres",
        database,
    ])
}

/// Creates the database and restores the archive into it, as a user would who has nothing but
/// PostgreSQL: stock `pg_restore`, two jobs, not one error, not a word of complaint.
#[track_caller]
pub fn restore_into(cluster: &Cluster, archive: &Path, database: &str) -> Finished {
    cluster.create_database(database);
    let finished =
        pg_restore(cluster, database).args(["-j2", "--exit-on-error"]).arg(archive).run();
    finished.assert_exit(0).assert_silent();
    finished
}

fn connected(cluster: &Cluster, name: &str, database: &str) -> Program {
    Program::new(cluster, cluster.bindir().join(name)).connected_to(cluster, database)
}
