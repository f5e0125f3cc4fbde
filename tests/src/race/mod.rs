//! Races between a dump and DDL, with the moments chosen and not hoped for.
//!
//! A dump takes its snapshot, runs `pg_dump` for the DDL, locks its tables, and checks. What
//! another session commits in between is what these tests are about. The [`window`](drive)
//! stops a dump in between by nothing but the server's lock queues; a [`Case`] says what is
//! committed there and what must follow; [`run()`] does it and compares what a stock
//! `pg_restore` brings back with what the snapshot held.

mod case;
pub mod cases;
mod run;
mod state;
mod window;

pub use case::{Case, Change, Check, Step, Verdict};
pub use run::run;
pub use state::DatabaseState;
pub use window::{BARRIER, Moment, Then, Window, drive};
