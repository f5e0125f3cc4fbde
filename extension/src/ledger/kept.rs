//! Proof that a relation was replaced and has lost no row.

use std::collections::HashMap;

use stillpoint_check::{Oid, RelationState};

use super::record::Effect;
use super::table::Ledger;
use crate::fence::catalog::database;
use crate::fence::transaction::in_recovery;
use crate::fence::{Failure, Snapshot, old_snapshots_may_fail};

/// Replacements that have kept every version of every row: from one file to the next.
pub struct KeptRows {
    next: HashMap<(Oid, Oid), Oid>,
}

impl KeptRows {
    /// Those that have finished since `snapshot` was taken, as `latest` sees them.
    ///
    /// There are none on a standby: what the primary's VACUUM has removed is not kept back for
    /// its snapshots. Nor where a setting lets the server remove what old snapshots ask for.
    pub fn since(snapshot: &Snapshot, latest: &Snapshot) -> Result<Self, Failure> {
        if in_recovery() || old_snapshots_may_fail() {
            return Ok(Self { next: HashMap::new() });
        }
        let Some(ledger) = Ledger::open_for_reading()? else {
            return Ok(Self { next: HashMap::new() });
        };
        let next = ledger
            .finished_since(snapshot.horizon(), latest)
            .into_iter()
            .filter(|record| record.effect == Effect::Replaced && record.rows_kept)
            .filter(|record| record.storage.database == database())
            .filter_map(|record| {
                Some(((record.relation, record.storage.filenode), record.replaced_by?))
            })
            .collect();
        Ok(Self { next })
    }

    /// Whether an unbroken chain of such replacements leads from the one file to the other.
    pub fn lead(&self, before: &RelationState, latest: &RelationState) -> bool {
        let mut filenode = before.filenode;
        // No chain is longer than all there are; damaged rows may lead in a circle.
        for _ in 0..=self.next.len() {
            if filenode == latest.filenode {
                return before.tablespace == latest.tablespace && filenode != before.filenode;
            }
            match self.next.get(&(before.relation, filenode)) {
                Some(&next) => filenode = next,
                None => return false,
            }
        }
        false
    }
}
