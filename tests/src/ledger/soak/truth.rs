//! What the catalogs say that a consumer must have been told.

use std::collections::{BTreeMap, BTreeSet};

use postgres::Error;
use postgres::types::Oid;

use crate::Session;

/// A tablespace and the number of a file in it.
pub(super) type File = (Oid, Oid);

/// The file of every relation that has one in `pg_class` and is not temporary.
#[derive(Clone, Debug, Default)]
pub(super) struct Files(BTreeMap<Oid, File>);

impl Files {
    pub(super) fn read(session: &mut Session) -> Result<Self, Error> {
        let rows = session.try_rows(
            "SELECT c.oid, COALESCE(NULLIF(c.reltablespace, 0), d.dattablespace), c.relfilenode \
               FROM pg_catalog.pg_class AS c \
               JOIN pg_catalog.pg_database AS d ON d.datname = current_database() \
              WHERE c.relfilenode <> 0 AND c.relpersistence <> 't'",
        )?;
        let files = rows.into_iter().map(|row| {
            let number = |column: usize| number(row[column].as_deref());
            (number(0), (number(1), number(2)))
        });
        Ok(Self(files.collect()))
    }

    /// The relation that has this file.
    pub(super) fn relation_with(&self, file: File) -> Option<Oid> {
        self.0.iter().find(|(_, it)| **it == file).map(|(relation, _)| *relation)
    }

    fn all(&self) -> BTreeSet<File> {
        self.0.values().copied().collect()
    }
}

/// Reads a column that is an OID.
pub(super) fn number(text: Option<&str>) -> Oid {
    text.and_then(|text| text.parse().ok()).expect("an OID is a number, and not NULL")
}

/// What was there at a bookmark, between two looks at the catalog.
#[derive(Clone, Debug)]
pub(super) struct Around {
    pub(super) before: Files,
    pub(super) after: Files,
    /// Which life of the server it was; odd if that was about to end, or the next had just begun.
    /// What was committed after the bookmark may be lost with it, and then a file that was there
    /// in the second look was never there.
    pub(super) life: u32,
}

/// What a consumer must have been told of the time between two bookmarks.
#[derive(Clone, Debug, Default)]
pub(super) struct Due {
    /// Files that have gone, and those that have taken their places.
    pub(super) surely: BTreeSet<File>,
    /// Files that went just when the first bookmark was taken: told before it or after it.
    pub(super) or_before: BTreeSet<File>,
}

/// What is due for a consumer that goes from one bookmark to another.
pub(super) fn due(from: &Around, to: &Around) -> Due {
    let (before, after, now) = (from.before.all(), from.after.all(), to.before.all());
    let is_one_life = from.life == to.life && from.life.is_multiple_of(2);
    let is_certain = |file: &File| is_one_life || before.contains(file);
    let gone = after.iter().filter(|file| !now.contains(file)).filter(|file| is_certain(file));
    let replacing = from.after.0.iter().filter_map(|(relation, file)| {
        let present = to.before.0.get(relation)?;
        // It had that one already if the other was lost in a crash.
        let is_new = present != file && !before.contains(present);
        (is_new && is_certain(file)).then_some(*present)
    });
    // What has gone and is there again had gone by a commit that was lost in a crash.
    let at_once = before.iter().filter(|file| !after.contains(file) && !now.contains(file));
    Due { surely: gone.copied().chain(replacing).collect(), or_before: at_once.copied().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(Oid, Oid)]) -> Files {
        Files(files.iter().map(|&(relation, number)| (relation, (1663, number))).collect())
    }

    fn around(before: &[(Oid, Oid)], after: &[(Oid, Oid)]) -> Around {
        Around { before: files(before), after: files(after), life: 0 }
    }

    fn numbers(files: &BTreeSet<File>) -> Vec<Oid> {
        files.iter().map(|file| file.1).collect()
    }

    #[test]
    fn what_has_gone_is_due_and_what_has_taken_its_place() {
        let from = around(&[(1, 10), (2, 20), (3, 30)], &[(1, 10), (2, 20), (3, 30)]);
        let to = around(&[(1, 11), (3, 30), (4, 40)], &[]);
        let due = due(&from, &to);
        assert_eq!(numbers(&due.surely), [10, 11, 20]);
        assert!(due.or_before.is_empty());
    }

    #[test]
    fn what_goes_while_the_bookmark_is_taken_is_due_before_it_or_after_it() {
        let from = around(&[(1, 10), (2, 20)], &[(1, 11), (2, 20)]);
        let due = due(&from, &around(&[(1, 11), (2, 20)], &[]));
        assert!(due.surely.is_empty());
        assert_eq!(numbers(&due.or_before), [10]);
    }

    #[test]
    fn what_a_crash_has_taken_back_is_not_due() {
        let from = around(&[(1, 10)], &[(1, 11), (2, 20)]);
        let to = Around { life: 2, ..around(&[(1, 10)], &[]) };
        let due = due(&from, &to);
        assert!(due.surely.is_empty() && due.or_before.is_empty(), "{due:?}");
    }
}
