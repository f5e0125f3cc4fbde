//! The rows of one relation.

use postgres::CopyOutReader;

use super::{Error, Session};

impl Session {
    /// Runs a `COPY ... TO STDOUT` and gives its bytes as they come.
    ///
    /// # Errors
    ///
    /// What the server says when it starts: no privilege, row-level security, a relation that
    /// cannot be opened. Later errors come out of the reader.
    pub fn copy_out(&mut self, statement: &str) -> Result<CopyOutReader<'_>, Error> {
        self.client.copy_out(statement).map_err(Error::doing("start COPY"))
    }
}
