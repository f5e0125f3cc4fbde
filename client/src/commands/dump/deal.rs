//! Dealing relations to workers: by size, in advance, so that no worker asks for a lock later.

use crate::server::RelationRow;

/// Parts the relations among at most `workers` hands of about the same size, each smallest
/// first (by pages, then by OID): the order in which they are to be locked. They are exported
/// the other way round.
///
/// No hand is empty; there are fewer hands than workers if there are fewer relations.
pub fn deal(mut relations: Vec<RelationRow>, workers: usize) -> Vec<Vec<RelationRow>> {
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
