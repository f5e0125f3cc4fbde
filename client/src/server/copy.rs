//! The rows of relations.

use super::Session;
use crate::wire::{Copies, Rows};

impl Session {
    /// Runs a `COPY ... TO STDOUT` statement and gives its bytes as they come.
    ///
    /// # Errors
    ///
    /// What the server says when it starts, see [`copies`](Self::copies).
    pub fn copy(&mut self, statement: &str) -> Result<Rows<'_>, tokio_postgres::Error> {
        self.client.copy(statement)
    }

    /// Runs `COPY ... TO STDOUT` statements one after the other and gives their bytes as they
    /// come. The server looks names up when a statement's turn has come; what it says then, such
    /// as no privilege, row-level security, or a relation that cannot be opened, comes before
    /// the first byte.
    pub fn copies<T, I>(&mut self, statements: I) -> Copies<'_, T, I>
    where
        I: Iterator<Item = (T, String)>,
    {
        self.client.copies(statements)
    }
}
