//! The ledger, and the truth to hold it against.
//!
//! [`Storage`] is what `pg_class` says before and after something was done, [`Entry`] a row of
//! the ledger. [`findings()`] compares the two: it knows no statement, only that whatever lost its
//! filenode must have been told exactly once, and nothing else.

mod entry;
mod findings;
pub mod fuzz;
pub mod soak;
mod storage;

pub use entry::{Effect, Entry, Mark};
pub use findings::findings;
pub use storage::{Relation, Scope, Storage};
