//! The server side of stillpoint: SQL functions that prove, inside the server, that a relation
//! still holds what a snapshot promises.
//!
//! The SQL that declares them is written by hand, in `sql/`, and kept for every version. All
//! that touches the server stands behind the module `fence`; the rest is safe Rust.

#![deny(unsafe_code)]

// `crate::pgrx` is where the fence finds the server's bindings and its guard. A build that has
// the bindings but not the crate of this name puts a module in its place.
extern crate pgrx;

mod changed_relations;
mod error;
#[allow(unsafe_code)]
mod fence;
mod sql_functions;

pgrx::pg_module_magic!();
