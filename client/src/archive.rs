//! The directory archive that `pg_dump -Fd` writes and `pg_restore` reads: its table of contents
//! and the names of its files.

mod entries;
mod error;
mod prefix;
#[cfg(test)]
pub mod sample;
#[cfg(test)]
mod tests;
mod toc;

pub use entries::{
    Creator, MaterializedViewData, SequenceSet, TableData, copy_statement, data_file_name,
};
pub use error::TocError;
pub use toc::{Contents, DumpId, TOC_FILE_NAME, Toc};
