//! The server, behind a fence: all unsafe code of the extension, thin, over `pg_sys` only.
//!
//! What stands above can be wrong but not unsound: the types here check what the server hands
//! out (a column's type, a set's columns) before they read or write memory by it.
//!
//! **Errors.** A server function that fails jumps back to the nearest handler, over every frame
//! in between. The bindings put a handler around each call of a server function and go on as a
//! Rust panic, so that destructors run; the guard around a SQL function
//! (`pgrx_extern_c_guard`) catches the panic and raises the server's error again.
//!
//! The hook is the exception: the statement that it calls on to runs without such a handler, see
//! [`utility`].
//!
//! **Guards.** A connection to SPI, a result of SPI, a registered snapshot, an open relation, a
//! scan and an insertion are given back when they are dropped, but not while a panic unwinds. The
//! error that it stands for ends the (sub)transaction, and that gives back all of them
//! (`AtEOXact_SPI`, `AtEOSubXact_SPI`, `ResourceOwnerRelease`). A server function called at that moment could fail as well, and a
//! panic in a destructor during a panic aborts the backend, which restarts the whole server.
//!
//! **Other servers.** Nothing here needs the `pgrx` crate itself, only its bindings and guard,
//! reached through [`crate::pgrx`]. Differences between server versions stand in [`compat`].

pub mod call;
pub mod catalog;
mod compat;
pub mod control;
mod datum;
mod error;
pub mod init;
mod list;
mod lock;
mod missing;
mod relation;
mod relcache;
mod row;
mod rows;
pub mod settings;
mod snapshot;
mod spi;
pub mod statement;
mod table;
mod text;
pub mod transaction;
mod utility;

use crate::pgrx::pg_sys;

pub use call::{Answer, Call};
pub use compat::{
    CLUSTER_COVERS_PARTITIONS, REINDEX_COVERS_PARTITIONS, REINDEX_DATABASE_COVERS_CATALOGS,
    VACUUM_COVERS_CHILDREN, old_snapshots_may_fail,
};
pub use datum::Value;
pub use error::{Caught, ErrorReport, Failure, SqlState, log, warn};
pub use lock::{Hold, Lifetime, Marker, transaction_holds_lock_on};
pub use relcache::{Touched, forget_touched, take_touched};
pub use row::Row;
pub use rows::RowSet;
pub use snapshot::{Snapshot, transaction_keeps_its_snapshot};
pub use spi::Spi;
pub use statement::Statement;
pub use table::{Place, Table, XidKey};
pub use text::Encoding;
pub use utility::{Around, forget_running, is_running};
