//! A file-level incremental backup by the ledger: restored, it holds what its source held.

mod chains;
mod paths;
mod reused_files;
