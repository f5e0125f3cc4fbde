//! The harness of the tests against real servers.
//!
//! * [`Cluster`] is a temporary PostgreSQL cluster, gone afterwards whatever happens, whose log
//!   must hold nothing unexpected.
//! * [`Session`] is a connection to it. Sessions that run at the same time are put in order by
//!   locks and by what the server's views show ([`wait_until`]), never by sleeping.
//! * [`Stillpoint`], [`pg_dump`], [`pg_restore`] and [`psql`] run commands. What fails prints
//!   the scene: command line, status, output and the tail of the server's log.
//!
//! Nothing here installs anything: the extension's files have to be in the server's
//! directories before the tests run, and a test that misses them fails.
//!
//! Environment: `PG_CONFIG` names the server's `pg_config`, `STILLPOINT_BIN` the client,
//! `STILLPOINT_TEST_KEEP` (set to anything) keeps the clusters' directories for inspection.

mod cluster;
mod command;
mod copies;
mod digest;
pub mod figure;
pub mod incremental;
mod keeper;
pub mod ledger;
pub mod measure;
pub mod oracle;
mod programs;
pub mod proxy;
pub mod race;
pub mod random;
mod server_log;
mod session;
mod single_user;
mod stillpoint;
pub mod storm;
mod template;
mod wait;
pub mod workload;

pub use cluster::{Cluster, ClusterOptions};
pub use command::{Finished, Program, Running};
pub use digest::{TableDigest, table_digest};
pub use programs::{
    pg_amcheck, pg_dump, pg_restore, pgbench, psql, restore_into, server_program, set_next_oid,
    vacuumdb, wal_records,
};
pub use session::{Background, Connector, Session};
pub use single_user::SingleUser;
pub use stillpoint::{Stillpoint, client_binary};
pub use wait::{DEADLINE, wait_until};
