//! What the installation script asks for, and whether the library is in every session.

use std::cell::Cell;

use super::error::Hindrance;
use super::own_tables::Recordings;
use super::unrecorded;
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

/// Who owns the schema, unless a superuser does.
const FOREIGN_OWNER: &str = "\
    SELECT r.rolname::pg_catalog.text \
      FROM pg_catalog.pg_namespace AS n \
      JOIN pg_catalog.pg_roles AS r ON r.oid = n.nspowner \
     WHERE n.nspname = 'stillpoint' AND NOT r.rolsuper";

/// The transactions that are prepared in this database.
const PREPARED: &str = "\
    SELECT gid::pg_catalog.text FROM pg_catalog.pg_prepared_xacts \
     WHERE database = pg_catalog.current_database()";

/// The SQL function that the installation script calls when the tables are there.
pub fn begin_ledger(_: &Call) -> Result<Answer, Failure> {
    if is_preloaded() {
        unrecorded::wait_without_ledger();
    }
    refuse_what_hinders()?;
    Recordings::install()?;
    if !is_preloaded() {
        warn(
            ErrorReport::new(
                SqlState::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "the library \"stillpoint\" is not preloaded: the ledger records nothing",
                "begin_ledger",
            )
            .set_hint(
                "Add stillpoint to shared_preload_libraries, best as the first, and restart the \
                 server. changed_relations() works without.",
            ),
        );
    }
    Ok(Answer::nothing())
}

fn refuse_what_hinders() -> Result<(), Failure> {
    let spi = Spi::connect();
    let (encoding, latest) = (spi.encoding(), Snapshot::latest());
    let texts = |query| spi.select(query, &[], &latest, |row: &Row<'_>| row.text(0));
    if let Some(owner) = texts(FOREIGN_OWNER).pop() {
        return Err(Hindrance::ForeignSchema { owner, encoding }.into());
    }
    // Without the library nothing will be recorded anyway, until the server has started again.
    let mut prepared = if is_preloaded() { texts(PREPARED) } else { Vec::new() };
    let count = prepared.len();
    match prepared.pop() {
        Some(name) => Err(Hindrance::Prepared { count, name, encoding }.into()),
        None => Ok(()),
    }
}
