//! Dealing relations to workers: by size, in advance, so that no worker asks for a lock later.

use std::collections::HashSet;
use std::time::Instant;

use stillpoint_check::Oid;

use super::ddl::{Describing, Expected, Started, archive_encoding};
use super::lock::{Dealt, Tables, Unlocked, Worker};
use super::snapshot::{Resolved, Snapshot};
use super::{AttemptEnd, Error, Options, Timings};
use crate::server::RelationRow;

impl Started {
    /// Lists what the snapshot has, and deals the tables to workers, each with its session under
    /// the snapshot. What `pg_dump` does goes on beside this.
    pub fn deal(
        self,
        options: &Options,
        timings: &mut Timings,
    ) -> Result<(Describing, Dealt), AttemptEnd> {
        let start = Instant::now();
        // In this order: what comes later is dropped earlier, pg_dump before its snapshot.
        let Self { resolved: Resolved { mut snapshot, selected }, peers, run, waker } = self;
        let mut relations = snapshot.connected.session.wanted_relations(&selected.wanted)?;
        let described = relations.iter().filter(|row| row.configuration.is_none());
        let tables = described.map(|row| row.relation).collect();
        let unreadable = unreadable(&mut snapshot, &relations)?;
        relations.retain(|row| row.kind != 'p' && !unreadable.contains(&row.relation));
        let (readable, configuration): (Vec<_>, Vec<_>) =
            relations.into_iter().partition(|row| row.kind == 'r');
        let names = snapshot.connected.session.named_objects()?;
        timings.resolve += start.elapsed();

        let mut workers = Vec::new();
        for relations in deal(readable, options.jobs) {
            let session = peers.under_snapshot().map_err(|error| {
                AttemptEnd::from(error).naming_blockers(&mut snapshot.connected.session)
            })?;
            workers.push(Worker { session, relations, unlocked: Unlocked::new() });
        }
        let connected = &snapshot.connected;
        let dealt = Dealt(Tables {
            workers,
            peers: peers.clone(),
            method: connected.check,
            encoding: archive_encoding(&connected.identity.encoding),
        });
        let expected = Expected { tables, named: selected.named, configuration, unreadable, names };
        Ok((Describing { run, waker, snapshot, peers, expected }, dealt))
    }
}

/// Relations that hold nothing on this server: a standby has no rows of unlogged tables. As
/// `pg_dump` does, the dump gives their definitions alone.
fn unreadable(snapshot: &mut Snapshot, relations: &[RelationRow]) -> Result<HashSet<Oid>, Error> {
    if !snapshot.connected.identity.in_recovery {
        return Ok(HashSet::new());
    }
    let unlogged = snapshot.connected.session.unlogged_relations()?;
    for row in relations.iter().filter(|row| unlogged.contains(&row.relation)) {
        tracing::warn!("table {} is unlogged: a standby has no rows of it", row.quoted());
    }
    Ok(unlogged)
}

/// Parts the relations among at most `workers` hands of about the same size, each smallest
/// first (by pages, then by OID): the order in which they are to be locked. They are exported
/// the other way round.
///
/// No hand is empty; there are fewer hands than workers if there are fewer relations.
fn deal(mut relations: Vec<RelationRow>, workers: usize) -> Vec<Vec<RelationRow>> {
    /// What a relation costs besides its pages: COPY's start, a file.
    const OVERHEAD_PAGES: u64 = 8;

    relations.sort_by_key(|relation| (relation.pages, relation.relation));
    let hands = workers.max(1).min(relations.len());
    let mut dealt: Vec<(u64, Vec<RelationRow>)> = vec![(0, Vec::new()); hands];
    while let Some(relation) = relations.pop() {
        // The largest that is left goes to the hand that holds least (LPT rule).
        if let Some((load, hand)) = dealt.iter_mut().min_by_key(|(load, _)| *load) {
            *load += u64::from(relation.pages) + OVERHEAD_PAGES;
            hand.push(relation);
        }
    }
    dealt
        .into_iter()
        .map(|(_, mut hand)| {
            hand.reverse();
            hand
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relations(pages: &[u32]) -> Vec<RelationRow> {
        (16384..)
            .zip(pages)
            .map(|(relation, pages)| RelationRow {
                relation,
                schema: "public".into(),
                name: format!("t{relation}"),
                kind: 'r',
                pages: *pages,
                columns: Vec::new(),
                configuration: None,
                owner: "postgres".into(),
            })
            .collect()
    }

    #[test]
    fn hands_are_of_about_one_size_and_smallest_first() {
        let hands = deal(relations(&[100, 10_000, 0, 5_000, 5_100, 0]), 2);
        let pages: Vec<Vec<u32>> =
            hands.iter().map(|hand| hand.iter().map(|relation| relation.pages).collect()).collect();
        assert_eq!(pages, [vec![0, 100, 10_000], vec![0, 5_000, 5_100]]);
    }

    #[test]
    fn equal_sizes_are_locked_by_oid_and_no_hand_is_empty() {
        let hands = deal(relations(&[0, 0, 0]), 8);
        assert_eq!(hands.len(), 3);
        let hands = deal(relations(&[0, 0, 0]), 1);
        let oids: Vec<u32> = hands[0].iter().map(|relation| relation.relation).collect();
        assert_eq!(oids, [16384, 16385, 16386]);
        assert!(deal(Vec::new(), 4).is_empty());
    }
}
