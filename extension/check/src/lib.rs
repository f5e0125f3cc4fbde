//! What a relation looks like under a snapshot, and what has happened to it since.
//!
//! PostgreSQL resolves names in the live catalog and judges rows by the snapshot. DDL that
//! commits between the two makes a table silently empty, or another table. The check runs one
//! catalog query under two snapshots, the transaction's and the latest, and compares the
//! answers. The server extension runs it through SPI, the client over two connections: the
//! queries and the comparison stand here once, so that both come to the same verdict.
//!
//! Nothing here talks to a server or allocates anything that a server error could leak.

mod reason;
mod state;

pub use reason::{Reason, Reasons};
pub use state::{RelationState, compare};

/// An object identifier (`oid`), as PostgreSQL numbers relations, types and schemas.
pub type Oid = u32;

/// Catalog query: the [`RelationState`] of every relation in `$1 oid[]`.
pub const RELATION_STATE: &str = include_str!("../../../sql/catalog/relation_state.sql");

/// Catalog query: the relations that the pairs of `$1 text[]` (schemas) and `$2 text[]`
/// (names) mean.
pub const RELATION_NAMES: &str = include_str!("../../../sql/catalog/relation_names.sql");

/// Catalog query: all ancestors of every relation in `$1 oid[]`.
pub const RELATION_ANCESTORS: &str = include_str!("../../../sql/catalog/relation_ancestors.sql");
