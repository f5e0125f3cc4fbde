//! Work that lasts over several transactions, such as that of VACUUM.
//!
//! A moment cannot stand for it. A backup may take its bookmark when the record has committed
//! and the work has only begun: to ask for what has committed after that bookmark would not find
//! it. So the rows are open (`finished_xid` is NULL) from before the work until a later
//! transaction closes them, and an open row counts for every bookmark.
//!
//! Who holds an interval open holds a lock that marks it. The server itself releases that lock
//! when the work fails or its session ends, and after a crash there is none: rows whose lock can
//! be had are orphans. Nobody knows how far that work had come, so they are closed as of the
//! transaction that finds them, and stay what they were announced as.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use stillpoint_check::Oid;

use super::error::Hindrance;
use super::record::{Effect, Record};
use super::table::{Ledger, Rows, by_storage};
use super::targets::{Target, is_in_place, keeps_rows, targets};
use super::{recording, session, unrecorded};
use crate::fence::catalog::{self, Storage, database};
use crate::fence::statement::Work;
use crate::fence::transaction::{
    Durability, End, OwnTransactions, commit_and_begin, commit_need_not_be_durable,
    see_own_changes, xid,
};
use crate::fence::{Failure, Hold, Lifetime, Marker, Place};

/// The interval that this session holds open.
#[derive(Debug)]
pub struct Interval {
    work: Work,
    own: OwnTransactions,
    /// The announced rows that are not completed yet.
    rows: Rows,
    /// What each file will have become when the work ends well.
    effects: HashMap<Storage, Effect>,
    /// Announced relations whose file the relation mapper knows.
    mapped: Vec<(Oid, Storage)>,
    /// One for each transaction that has announced.
    markers: Vec<Marker>,
    /// Where the ledger's own rows are: the places in `rows` are those of this file.
    ledger: Option<Storage>,
    /// The transaction that records the end is about to commit.
    is_closing: bool,
}

thread_local! {
    static OPEN: RefCell<Option<Interval>> = const { RefCell::new(None) };
}

/// The interval, taken out for the time of some work on it: while the server runs, nothing of ours
/// may be borrowed. It is put back in any case: a failure may be no more than a warning, and if
/// the transaction is rolled back, so is the interval.
struct Taken(Option<Interval>);

impl Taken {
    fn take() -> Self {
        Self(OPEN.with(RefCell::take))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(interval) = self.0.take() {
            OPEN.with(|open| open.replace(Some(interval)));
        }
    }
}

/// Whether this session holds an interval open.
pub fn is_open() -> bool {
    OPEN.with(|open| open.borrow().is_some())
}

/// The row that announced a file, if it is not completed yet, and where it is.
pub fn announcement(ledger: &Ledger, storage: Storage) -> Option<(Place, Record)> {
    let mut taken = Taken::take();
    let interval = taken.0.as_mut()?;
    interval.find_rows_again(ledger);
    interval.rows.get(&storage).cloned()
}

/// Announced relations whose file the relation mapper knows.
pub fn mapped() -> Vec<(Oid, Storage)> {
    OPEN.with(|open| open.borrow().as_ref().map_or_else(Vec::new, |it| it.mapped.clone()))
}

/// These files have got their final rows.
pub fn forget(completed: &[Storage]) {
    OPEN.with(|open| {
        if let Some(interval) = open.borrow_mut().as_mut() {
            for storage in completed {
                interval.rows.remove(storage);
            }
        }
    });
}

/// Announces what `work` is going to do, durably, before it begins. Gives whether its end is to be
/// told.
pub fn open(work: Work, own: OwnTransactions) -> Result<bool, Failure> {
    /// What is created between a look at the catalogs and the server's own is found by the next
    /// look. There would be no end to that where tables are made all the time.
    const LOOKS: usize = 2;

    let keeps_rows = keeps_rows(&work);
    OPEN.with(|open| open.replace(Some(Interval::new(work, own))));
    let mut is_recorded = true;
    for _ in 0..LOOKS {
        match with(|interval| recording(|| interval.announce()))? {
            Some(true) => commit_and_begin(own, Durability::Durable),
            announced => {
                is_recorded = announced.is_some();
                break;
            }
        }
    }
    if !is_recorded {
        unrecorded::begin_statement()?;
    }
    let relations = with(|interval| Ok(interval.relations()))?;
    if relations.is_empty() {
        OPEN.with(RefCell::take);
        return Ok(!is_recorded);
    }
    if keeps_rows {
        session::keep_rows_of(relations);
    }
    Ok(true)
}

/// Records the end of the work, in a transaction of its own: what a client sends in the same
/// pipeline is none of that.
pub fn close() -> Result<(), Failure> {
    let own = with(|interval| {
        // If this fails and that is only a warning, the interval is left to whoever finds it.
        recording(|| interval.end())?;
        interval.is_closing = true;
        Ok(interval.own)
    })?;
    commit_and_begin(own, Durability::AsSet);
    Ok(())
}

fn with<T>(work: impl FnOnce(&mut Interval) -> Result<T, Failure>) -> Result<T, Failure> {
    match Taken::take().0.as_mut() {
        Some(interval) => work(interval),
        None => Err(Hindrance::IntervalLost.into()),
    }
}

/// A transaction of the interval has ended.
pub fn on_end(end: End) {
    let ended = OPEN.with(|open| {
        let is_over = end == End::Aborted
            || open.borrow().as_ref().is_some_and(|interval| interval.is_closing);
        if is_over { open.take() } else { None }
    });
    if let Some(interval) = ended
        && end != End::Aborted
    {
        // Not before now: whoever gets the lock must find the rows closed. If the transaction
        // was rolled back, the server has let go of them.
        for marker in interval.markers {
            marker.let_go(Hold::Alone);
        }
    }
}

impl Interval {
    fn new(work: Work, own: OwnTransactions) -> Self {
        Self {
            work,
            own,
            rows: Rows::new(),
            effects: HashMap::new(),
            mapped: Vec::new(),
            markers: Vec::new(),
            ledger: None,
            is_closing: false,
        }
    }

    fn relations(&self) -> BTreeSet<Oid> {
        self.rows.values().map(|(_, record)| record.relation).collect()
    }

    /// Announces, in the current transaction, what was not announced yet. Gives whether there was
    /// anything.
    fn announce(&mut self) -> Result<bool, Failure> {
        let found = self.not_announced();
        if found.is_empty() {
            return Ok(false);
        }
        let Some(ledger) = Ledger::open_for_writing()? else { return Ok(false) };
        close_orphans(&ledger, &self.markers);
        let records = Record::announcing(&found, None);
        let places = ledger.write(&records);
        // Last, for the session would keep it if anything above fails and that is only a warning.
        let marker = marker(&ledger, xid());
        if !marker.take_for_session() {
            return Err(Hindrance::MarkerTaken.into());
        }
        self.markers.push(marker);
        self.ledger = ledger.storage();
        for (target, (place, record)) in found.iter().zip(places.into_iter().zip(records)) {
            self.effects.insert(target.storage, target.effect);
            if target.relation.is_mapped() {
                self.mapped.push((target.relation.oid, target.storage));
            }
            self.rows.insert(target.storage, (place, record));
        }
        Ok(true)
    }

    fn not_announced(&self) -> Vec<Target> {
        let mut found = targets(&self.work);
        found.retain(|target| !self.effects.contains_key(&target.storage));
        found
    }

    /// The ledger itself may have been rewritten by the work, and its rows be elsewhere.
    fn find_rows_again(&mut self, ledger: &Ledger) {
        let storage = ledger.storage();
        if storage != self.ledger {
            let known = &self.rows;
            self.rows = by_storage(ledger.open_intervals(|record| {
                known.get(&record.storage).is_some_and(|(_, it)| it.xid == record.xid)
            }));
            self.ledger = storage;
        }
    }

    /// Records the end.
    fn end(&mut self) -> Result<(), Failure> {
        see_own_changes();
        let Some(ledger) = Ledger::open_for_writing()? else { return Ok(()) };
        self.find_rows_again(&ledger);
        let xid = xid();
        let mut closed = Vec::new();
        let began = self.rows.values().map(|(_, record)| record.xid).min().unwrap_or(xid);
        for (storage, (place, record)) in &self.rows {
            ledger.delete(*place, record);
            let mut record = record.clone();
            record.finished_xid = Some(xid);
            record.effect = self.effects.get(storage).copied().unwrap_or(Effect::Announced);
            closed.push(record);
        }
        if is_in_place(&self.work) {
            // What has another file than was announced, since somebody replaced it meanwhile, what
            // is new, and what has got a name of the statement: the work may have reached it.
            let late = self.not_announced();
            let mut records = Record::announcing(&late, Some(xid));
            for (target, record) in late.iter().zip(&mut records) {
                // Of the interval's beginning: the work may have come there at any time since.
                record.xid = began;
                record.effect = target.effect;
            }
            closed.extend(records);
        }
        ledger.write(&closed);
        // Lost in a crash, it is found open and closed later.
        commit_need_not_be_durable();
        Ok(())
    }
}

/// The lock that marks the interval that the transaction of that number has begun.
fn marker(ledger: &Ledger, xid: u64) -> Marker {
    Marker { table: ledger.oid, number: xid as u32, lifetime: Lifetime::Statement }
}

/// Closes the intervals that nobody holds open any more.
fn close_orphans(ledger: &Ledger, own: &[Marker]) {
    let here = [0, database()];
    let is_here = |record: &Record| here.contains(&record.storage.database);
    let open = ledger.open_intervals(is_here);
    let candidates: BTreeSet<u64> = open.iter().map(|(_, record)| record.xid).collect();
    let mut orphaned = BTreeSet::new();
    for candidate in candidates {
        let marker = marker(ledger, candidate);
        if !own.contains(&marker) && marker.take_for_transaction(Hold::Alone) {
            orphaned.insert(candidate);
        }
    }
    if orphaned.is_empty() {
        return;
    }
    // Once more, now that the locks are had: its session may have closed it meanwhile.
    let rows = ledger.open_intervals(|record| is_here(record) && orphaned.contains(&record.xid));
    let xid = xid();
    let mut closed = Vec::new();
    for (place, mut record) in rows {
        ledger.delete(place, &record);
        record.finished_xid = Some(xid);
        if let Some(storage) = catalog::relation(record.relation).and_then(|it| it.storage())
            && storage != record.storage
        {
            // It has another file by now, and the work may have come to that one.
            let mut other = record.clone();
            other.storage = storage;
            closed.push(other);
        }
        closed.push(record);
    }
    ledger.write(&closed);
}
