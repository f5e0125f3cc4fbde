//! What the installation script asks for, and whether the library is in every session.

use std::cell::Cell;

use crate::error::Refusal;
use crate::fence::{Answer, Call, ErrorReport, Failure, Row, Snapshot, Spi, SqlState, warn};

thread_local! {
    // Inherited by every process that the server starts.
    static PRELOADED: Cell<bool> = const { Cell::new(false) };
}

/// The server has loaded the library at its start.
pub fn note_preloaded() {
    PRELOADED.set(true);
}

/// Whether it has, so that every session has the library.
pub fn is_preloaded() -> bool {
    PRELOADED.get()
}

/// Warns whoever installs a ledger that will record nothing.
pub fn warn_unless_preloaded(_: &Call) -> Result<Answer, Failure> {
    if !is_preloaded() {
        warn(
            ErrorReport::new(
                SqlState::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "the library \"stillpoint\" is not preloaded: the ledger records nothing",
                "warn_unless_preloaded",
            )
            .set_hint(
                "Add stillpoint to shared_preload_libraries, best as the first, and restart the \
                 server. changed_relations() works without.",
            ),
        );
    }
    Ok(Answer::nothing())
}

/// Who owns the schema, unless a superuser does.
const FOREIGN_OWNER: &str = "\
    SELECT r.rolname::pg_catalog.text \
      FROM pg_catalog.pg_namespace AS n \
      JOIN pg_catalog.pg_roles AS r ON r.oid = n.nspowner \
     WHERE n.nspname = 'stillpoint' AND NOT r.rolsuper";

/// Refuses to install a ledger into a schema that is somebody's who may not touch it.
pub fn refuse_foreign_schema(_: &Call) -> Result<Answer, Failure> {
    let spi = Spi::connect();
    let read = |row: &Row<'_>| row.text(0);
    match spi.select(FOREIGN_OWNER, &[], &Snapshot::latest(), read).pop() {
        Some(owner) => Err(Refusal::ForeignSchema { owner, encoding: spi.encoding() }.into()),
        None => Ok(Answer::nothing()),
    }
}
