//! Sequences: known when `pg_dump` has described them, read then, and compared like tables.

use std::time::Instant;

use stillpoint_check::Oid;

use super::ddl::{Described, Expected};
use super::lock::{BATCH, Budget, Unlocked, note_others, take_or_split};
use super::snapshot::{Peers, Snapshot};
use super::{AttemptEnd, Options, Timings};
use crate::archive::Toc;
use crate::quote::quote_qualified;
use crate::server::{RelationRow, SequenceValue, Session};

/// A sequence of the dump.
#[derive(Clone, Debug)]
pub struct Sequence {
    pub relation: Oid,
    pub schema: String,
    pub name: String,
    /// Its row, if it is part of an extension's configuration and not described in the archive.
    pub configuration: Option<RelationRow>,
}

/// The sequences of the dump, and what they were found to be at.
#[derive(Default)]
pub struct Sequences {
    pub all: Vec<Sequence>,
    pub values: Vec<SequenceValue>,
    pub unlocked: Unlocked,
}

/// The definitions, and sequences that may not be what the snapshot promises.
pub struct Valued {
    pub snapshot: Snapshot,
    pub peers: Peers,
    pub toc: Toc,
    pub sequences: Sequences,
}

impl Described {
    /// Reads the sequences, which cannot be locked but by reading them.
    pub fn lock(
        self,
        options: &Options,
        budget: Budget,
        timings: &mut Timings,
    ) -> Result<Valued, AttemptEnd> {
        let start = Instant::now();
        let Self { mut snapshot, peers, toc, expected } = self;
        let session = &mut snapshot.connected.session;
        let mut sequences = Sequences { all: sequences(&toc, &expected), ..Sequences::default() };
        let named: Vec<(Oid, String)> = sequences.all.iter().map(Sequence::quoted).collect();
        let mut read = |session: &mut Session, batch: &[(Oid, &str)]| {
            sequences.values.extend(session.sequence_values(batch)?);
            Ok(())
        };
        for batch in named.chunks(BATCH) {
            session.bound_statements(budget.remaining())?;
            take_or_split(session, batch, &mut sequences.unlocked, budget, &mut read)?;
        }
        session.bound_locks(options.lock_timeout)?;
        note_others(session, named.iter().map(|(oid, _)| *oid), &mut sequences.unlocked)?;
        timings.lock += start.elapsed();
        Ok(Valued { snapshot, peers, toc, sequences })
    }
}

impl Sequence {
    fn quoted(&self) -> (Oid, String) {
        (self.relation, quote_qualified(&self.schema, &self.name))
    }
}

/// The sequences that `pg_dump` has described, and those of extensions' configurations.
fn sequences(toc: &Toc, expected: &Expected) -> Vec<Sequence> {
    let described = toc.sequences().into_iter().map(|described| Sequence {
        relation: described.oid,
        schema: described.schema,
        name: described.name,
        configuration: None,
    });
    let configured =
        expected.configuration.iter().filter(|row| row.kind == 'S').map(|row| Sequence {
            relation: row.relation,
            schema: row.schema.clone(),
            name: row.name.clone(),
            configuration: Some(row.clone()),
        });
    let mut sequences: Vec<Sequence> = described.chain(configured).collect();
    sequences.retain(|sequence| !expected.unreadable.contains(&sequence.relation));
    sequences
}
