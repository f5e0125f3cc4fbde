//! The ledger against the truth.

use postgres::types::Oid;

use super::{Effect, Entry, Storage};

/// What is wrong with the ledger's rows about what has happened between `before` and `after`:
/// a miss, a surplus row, a row that says something else than `pg_class` does. `transactions`
/// says how often one relation may have been replaced in turn.
#[must_use]
pub fn findings(
    before: &Storage,
    after: &Storage,
    entries: &[Entry],
    transactions: usize,
) -> Vec<String> {
    let mut findings: Vec<String> =
        entries.iter().filter_map(|entry| contradiction(before, after, entry)).collect();
    let mut told: Vec<&Entry> = entries
        .iter()
        .filter(|entry| matches!(entry.effect, Effect::Replaced | Effect::Dropped))
        .collect();
    for (oid, relation) in before.iter() {
        let mut filenode = Some(relation.filenode);
        let mut links = 0;
        while let Some(next) = take_link(&mut told, oid, filenode) {
            filenode = next;
            links += 1;
        }
        let found = after.get(oid).map(|relation| relation.filenode);
        // The new index that an ALTER TABLE makes of an old one may take over its file.
        let file_lives_on =
            found.is_none() && after.has_file(relation.tablespace, relation.filenode);
        if filenode != found && !file_lives_on {
            findings.push(format!(
                "missed: \"{}\" ({oid}) had file {} and now has {found:?}, told is {filenode:?}",
                relation.label, relation.filenode
            ));
        }
        if links > transactions {
            findings.push(format!("\"{}\" ({oid}) is told {links} times", relation.label));
        }
    }
    findings.extend(told.into_iter().map(|entry| format!("surplus: {entry:?}")));
    findings
}

/// Takes the entry that says what became of the relation's file, if there is one, and gives the
/// file after it.
fn take_link(told: &mut Vec<&Entry>, relation: Oid, filenode: Option<Oid>) -> Option<Option<Oid>> {
    let filenode = filenode?;
    let position =
        told.iter().position(|entry| entry.relation == relation && entry.filenode == filenode)?;
    Some(told.swap_remove(position).replaced_by)
}

/// What an entry says that the catalog does not.
fn contradiction(before: &Storage, after: &Storage, entry: &Entry) -> Option<String> {
    let wrong = |what: &str| Some(format!("{what}: {entry:?}"));
    if (entry.replaced_by.is_some()) != (entry.effect == Effect::Replaced) {
        return wrong("replaced_by does not go with the effect");
    }
    let ends_with_itself = matches!(entry.effect, Effect::Replaced | Effect::Dropped);
    if ends_with_itself && entry.finished != Some(entry.xid) {
        return wrong("not finished by the transaction that has done it");
    }
    if entry.rows_kept && entry.effect != Effect::Replaced {
        return wrong("rows are kept by a replacement only");
    }
    let Some(relation) = before.get(entry.relation) else {
        return wrong("about a relation that was not there");
    };
    if relation.kind != entry.kind || relation.database != entry.database {
        return wrong("another kind or database");
    }
    // In the middle of a transaction that swaps names a relation can bear another's.
    if ![before, after].into_iter().any(|storage| storage.has_name(&entry.name)) {
        return wrong("a name that nothing bears");
    }
    if relation.filenode == entry.filenode && relation.tablespace != entry.tablespace {
        return wrong("another tablespace");
    }
    let same_file = matches!(entry.effect, Effect::Pages | Effect::Compacted);
    if same_file && relation.filenode != entry.filenode {
        return wrong("another file");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::Relation;
    use super::*;

    fn storage(files: &[(Oid, Oid)]) -> Storage {
        Storage::of(files.iter().map(|&(oid, filenode)| {
            let relation = Relation {
                name: format!("r{oid}"),
                label: format!("r{oid}"),
                kind: "r".to_owned(),
                database: 5,
                tablespace: 1663,
                filenode,
            };
            (oid, relation)
        }))
    }

    fn entry(relation: Oid, filenode: Oid, replaced_by: Option<Oid>) -> Entry {
        Entry {
            xid: 700,
            finished: Some(700),
            database: 5,
            tablespace: 1663,
            filenode,
            replaced_by,
            relation,
            name: format!("r{relation}"),
            kind: "r".to_owned(),
            command: None,
            effect: if replaced_by.is_some() { Effect::Replaced } else { Effect::Dropped },
            rows_kept: false,
        }
    }

    #[test]
    fn the_exact_rows_leave_no_finding() {
        let (before, after) = (storage(&[(1, 10), (2, 20), (3, 30)]), storage(&[(1, 11), (3, 30)]));
        let entries = [entry(1, 10, Some(11)), entry(2, 20, None)];
        assert_eq!(findings(&before, &after, &entries, 1), [""; 0]);
    }

    #[test]
    fn a_missing_row_is_a_miss() {
        let found = findings(&storage(&[(1, 10), (2, 20)]), &storage(&[(1, 11)]), &[], 1);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|finding| finding.starts_with("missed")));
    }

    #[test]
    fn a_row_about_nothing_is_surplus() {
        let same = storage(&[(1, 10)]);
        for entry in [entry(1, 10, Some(11)), entry(1, 10, None), entry(1, 9, Some(10))] {
            assert!(!findings(&same, &same, &[entry], 1).is_empty());
        }
        let (before, after) = (storage(&[(1, 10)]), storage(&[(1, 11)]));
        let twice = [entry(1, 10, Some(11)), entry(1, 10, Some(11))];
        assert_eq!(findings(&before, &after, &twice, 1).len(), 1);
    }

    #[test]
    fn a_chain_is_as_long_as_there_are_transactions() {
        let (before, after) = (storage(&[(1, 10)]), storage(&[(1, 12)]));
        let chain = [entry(1, 11, Some(12)), entry(1, 10, Some(11))];
        assert!(findings(&before, &after, &chain, 2).is_empty());
        assert_eq!(findings(&before, &after, &chain, 1).len(), 1);
    }

    #[test]
    fn a_file_that_another_relation_has_taken_over_need_not_be_told() {
        let (before, after) = (storage(&[(1, 10)]), storage(&[(2, 10)]));
        assert!(findings(&before, &after, &[], 1).is_empty());
    }

    #[test]
    fn what_contradicts_the_catalog_is_found() {
        let (before, after) = (storage(&[(1, 10)]), storage(&[(1, 11)]));
        let good = entry(1, 10, Some(11));
        for wrong in [
            Entry { kind: "i".to_owned(), ..good.clone() },
            Entry { name: "x".to_owned(), ..good.clone() },
            Entry { tablespace: 1, ..good.clone() },
            Entry { database: 0, ..good.clone() },
            Entry { finished: None, ..good.clone() },
            Entry { replaced_by: None, ..good.clone() },
            Entry { relation: 9, ..good },
        ] {
            assert!(!findings(&before, &after, &[wrong], 1).is_empty());
        }
    }
}
