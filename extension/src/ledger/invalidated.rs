//! `invalidated_since()` and `invalidated_between()`: which files are void for a backup.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use stillpoint_check::Oid;

use super::bookmark::{self, Token};
use super::error::Hindrance;
use super::gap::Gap;
use super::own_tables::Bookmarks;
use super::record::Record;
use super::table::Ledger;
use crate::fence::catalog::{Catalog, SHARED_TABLESPACE, Storage, database, directory};
use crate::fence::{Answer, Call, Encoding, Failure, RowSet, Snapshot, Spi, Value};

/// The SQL function `invalidated_since()`.
pub fn invalidated_since(call: &Call) -> Result<Answer, Failure> {
    let answer = RowSet::begin(call, Encoding::of_database())?;
    let bookmarks = Bookmarks::open_for_reading()?;
    let base = bookmark::find(&bookmarks, call.text(0))?;
    tell(answer, &bookmarks, &base, None)
}

/// The SQL function `invalidated_between()`.
pub fn invalidated_between(call: &Call) -> Result<Answer, Failure> {
    let answer = RowSet::begin(call, Encoding::of_database())?;
    let bookmarks = Bookmarks::open_for_reading()?;
    let base = bookmark::find(&bookmarks, call.text(0))?;
    let upto = bookmark::find(&bookmarks, call.text(1))?;
    if upto.xid < base.xid {
        return Err(Gap::Reversed.into());
    }
    tell(answer, &bookmarks, &base, Some(&upto))
}

fn tell(
    mut answer: RowSet,
    bookmarks: &Bookmarks,
    base: &Token,
    upto: Option<&Token>,
) -> Result<Answer, Failure> {
    let void = void(base, upto)?;
    // Afterwards: while the ledger was read, something may have gone unrecorded, or been pruned.
    if [Some(base), upto].into_iter().flatten().any(|token| bookmarks.find(&token.id).is_none()) {
        return Err(Gap::Forgotten.into());
    }
    if let Some(gap) = bookmark::gap(base, upto)? {
        return Err(gap.into());
    }
    for (storage, about) in void {
        let effects: Vec<&str> = about.effects.into_iter().collect();
        let commands: Vec<&str> = about.commands.iter().map(String::as_str).collect();
        let directory = directory(storage.database, storage.tablespace);
        answer.put(&[
            Value::Text(&format!("{directory}/{}", storage.filenode)),
            Value::Oid(Some(storage.tablespace)),
            Value::Oid(Some(storage.filenode)),
            Value::Oid(Some(about.relation)),
            Value::Text(&about.relation_name),
            Value::Texts(&effects),
            Value::Texts(&commands),
            Value::Timestamp(about.first_at),
            Value::Timestamp(about.last_at),
        ]);
    }
    Ok(answer.finish())
}

/// What the ledger says about a file.
struct About {
    relation: Oid,
    relation_name: String,
    effects: BTreeSet<&'static str>,
    commands: BTreeSet<String>,
    /// In microseconds since 2000-01-01.
    first_at: i64,
    last_at: i64,
}

/// The files that are void for whoever knows `base`, and knows of nothing after `upto`.
fn void(base: &Token, upto: Option<&Token>) -> Result<BTreeMap<Storage, About>, Failure> {
    let Some(ledger) = Ledger::open_for_reading()? else { return Err(Hindrance::NO_LEDGER.into()) };
    // One for both: what ends while they are read is seen once, as open or as finished.
    let now = Snapshot::latest();
    let is_here = |record: &Record| [0, database()].contains(&record.storage.database);
    let mut finished = ledger.finished_since(base.horizon(), &now);
    finished.retain(|record| !knows(base, record));
    // Nobody writes them here. They have come with a template, and so have all files.
    if !finished.iter().all(is_here) {
        return Err(Gap::OtherFiles.into());
    }
    let mut records = ledger.open_at(&now);
    records.extend(finished);
    records.retain(is_here);
    let places = Places::of(&records);
    // Work that was begun before `upto` may have changed the file before it, too.
    records.retain(|record| upto.is_none_or(|upto| upto.has_seen(record.xid)));
    let mut void = BTreeMap::new();
    let catalog = Catalog::open();
    let relations: Vec<Oid> = records.iter().map(|record| record.relation).collect();
    let present = catalog.relations_of(&relations, &now);
    for record in &records {
        let present = present.get(&record.relation).and_then(|seen| seen.relation.storage());
        add(&mut void, record.storage, record);
        if let Some(new) = record.replaced_by
            && present.is_none_or(|present| present.filenode != new)
        {
            for place in places.of_new(record, new) {
                add(&mut void, place, record);
            }
        }
        // Work that goes on is work on whatever file the relation has, and on what belongs to it.
        if record.finished_xid.is_none() {
            for part in parts(&catalog, record.relation, &now) {
                add(&mut void, part, record);
            }
        }
        if let Some(present) = present
            && (record.finished_xid.is_none() || record.replaced_by == Some(present.filenode))
        {
            add(&mut void, present, record);
        }
    }
    Ok(void)
}

/// Where the files are that have taken the places of others. A row does not say it, and it may be
/// in another tablespace.
struct Places {
    /// By relation and number of the file: what became of it later, perhaps after the time that is
    /// asked for, is told by a row of its own.
    known: BTreeMap<(Oid, Oid), Storage>,
    tablespaces: OnceCell<Vec<Oid>>,
}

impl Places {
    fn of(records: &[Record]) -> Self {
        let place = |record: &Record| ((record.relation, record.storage.filenode), record.storage);
        Self { known: records.iter().map(place).collect(), tablespaces: OnceCell::new() }
    }

    /// Where a file may be that the record names as the new one, and that is not the relation's
    /// present one. Without a row of its own another index has taken it over: it is then told in
    /// every tablespace.
    fn of_new(&self, record: &Record, filenode: Oid) -> Vec<Storage> {
        const TABLESPACES: &str = "SELECT t.oid FROM pg_catalog.pg_tablespace AS t";

        if let Some(place) = self.known.get(&(record.relation, filenode)) {
            return vec![*place];
        }
        if record.storage.database == 0 {
            return vec![Storage { filenode, ..record.storage }];
        }
        let tablespaces = self.tablespaces.get_or_init(|| {
            Spi::connect().select(TABLESPACES, &[], &Snapshot::latest(), |row| row.oid(0))
        });
        let of_databases =
            tablespaces.iter().filter(|tablespace| **tablespace != SHARED_TABLESPACE);
        of_databases.map(|&tablespace| Storage { tablespace, filenode, ..record.storage }).collect()
    }
}

/// The files of a table's indexes, and of its TOAST table with that one's.
fn parts(catalog: &Catalog, table: Oid, now: &Snapshot) -> Vec<Storage> {
    let toast = catalog.relation(table, now).map_or(0, |relation| relation.toast);
    let indexes = [table, toast].into_iter().filter(|oid| *oid != 0);
    let mut parts: Vec<Oid> = indexes
        .flat_map(|table| catalog.indexes(table).into_iter().map(|index| index.oid))
        .collect();
    parts.extend(Some(toast).filter(|oid| *oid != 0));
    let parts = catalog.relations_of(&parts, now).into_values();
    parts.filter_map(|seen| seen.relation.storage()).collect()
}

fn knows(base: &Token, record: &Record) -> bool {
    record.finished_xid.is_some_and(|xid| base.has_seen(xid))
}

fn add(void: &mut BTreeMap<Storage, About>, storage: Storage, record: &Record) {
    let about = void.entry(storage).or_insert_with(|| About {
        relation: record.relation,
        relation_name: record.relation_name.clone(),
        effects: BTreeSet::new(),
        commands: BTreeSet::new(),
        first_at: record.recorded_at,
        last_at: record.recorded_at,
    });
    about.effects.insert(record.effect.as_str());
    about.commands.extend(record.command.clone());
    about.first_at = about.first_at.min(record.recorded_at);
    if record.recorded_at >= about.last_at {
        about.last_at = record.recorded_at;
        about.relation = record.relation;
        about.relation_name.clone_from(&record.relation_name);
    }
}
