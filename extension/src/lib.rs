//! The server side of stillpoint: SQL functions that prove, inside the server, that a relation
//! still holds what a snapshot promises, and a ledger of the storage that a file-level backup may
//! no longer trust.
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
mod ledger;
mod settings;
mod sql_functions;

pgrx::pg_module_magic!();

fence::init::on_load!(on_load);

/// What happens when the server loads the library.
fn on_load() {
    fence::init::forget_backtraces();
    settings::define();
    ledger::install();
}
