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
use std::mem;

use stillpoint_check::Oid;

use super::announce::{Target, is_in_place, keeps_rows, targets};
use super::hook::records;
use super::record::{Effect, Record};
use super::table::{Ledger, Rows};
use super::{recording, session};
use crate::error::Refusal;
use crate::fence::catalog::{Storage, database};
use crate::fence::statement::Work;
use crate::fence::transaction::{
    Event, commit_durably_and_begin, commit_need_not_be_durable, see_own_changes, xid,
};
use crate::fence::{Failure, Marker, Place, Snapshot};

/// The interval that this session holds open.
#[derive(Debug)]
pub struct Interval {
    work: Work,
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

/// Whether this session holds an interval open.
pub fn is_open() -> bool {
    OPEN.with(|open| open.borrow().is_some())
}

/// Takes the interval for the time of some work on it: while the server runs, nothing of ours
/// may be borrowed.
pub fn with_open<T>(
    work: impl FnOnce(&mut Interval) -> Result<T, Failure>,
) -> Result<Option<T>, Failure> {
    let Some(mut interval) = OPEN.with(RefCell::take) else { return Ok(None) };
    // An error ends the transaction, and with it the interval.
    let result = work(&mut interval)?;
    OPEN.with(|open| open.replace(Some(interval)));
    Ok(Some(result))
}

/// Records the end of the work, in the transaction that the statement has left open.
pub fn close() -> Result<(), Failure> {
    with_open(|interval| {
        recording(|| interval.end())?;
        interval.is_closing = true;
        Ok(())
    })?;
    Ok(())
}

/// A transaction of the interval has ended.
pub fn on_end(event: Event) {
    let ended = OPEN.with(|open| {
        let is_over = event == Event::Aborted
            || open.borrow().as_ref().is_some_and(|interval| interval.is_closing);
        if is_over { open.take() } else { None }
    });
    if let Some(interval) = ended
        && event != Event::Aborted
    {
        // Not before now: whoever gets the lock must find the rows closed. If the transaction
        // was rolled back, the server has let go of them.
        for marker in interval.markers {
            marker.let_go();
        }
    }
}

impl Interval {
    /// Announces what `work` is going to do, durably, before it begins. Gives whether there was
    /// anything to announce.
    pub fn open(work: Work) -> Result<bool, Failure> {
        let mut interval = Self {
            rows: Rows::new(),
            effects: HashMap::new(),
            mapped: Vec::new(),
            markers: Vec::new(),
            ledger: None,
            is_closing: false,
            work,
        };
        // What is created between a look at the catalogs and the server's own is found by the
        // next look.
        while recording(|| interval.announce())? == Some(true) {
            OPEN.with(|open| open.replace(Some(interval)));
            commit_durably_and_begin();
            interval = match OPEN.with(RefCell::take) {
                Some(interval) => interval,
                // It is taken by an end of the transaction alone, and that would have failed.
                None => return Ok(false),
            };
        }
        let is_open = !interval.markers.is_empty();
        if is_open {
            if keeps_rows(&interval.work) {
                let relations: BTreeSet<Oid> =
                    interval.rows.values().map(|(_, record)| record.relation).collect();
                session::keep_rows_of(relations);
            }
            OPEN.with(|open| open.replace(Some(interval)));
        }
        Ok(is_open)
    }

    /// Announces, in the current transaction, what was not announced yet. Gives whether there was
    /// anything.
    fn announce(&mut self) -> Result<bool, Failure> {
        let found = self.not_announced();
        if found.is_empty() {
            return Ok(false);
        }
        let Some(ledger) = Ledger::open_for_writing()? else { return Ok(false) };
        close_orphans(&ledger, &self.markers)?;
        let records = records(&found, None);
        let places = ledger.write(&records);
        // Last, for the session would keep it if anything above fails and that is only a warning.
        let marker = Marker { table: ledger.oid, number: xid() as u32 };
        if !marker.take_for_session() {
            return Err(Refusal::MarkerTaken.into());
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

    /// Whether the announced row of a file is there to be completed, and takes it if so.
    pub fn take_row(&mut self, ledger: &Ledger, storage: Storage) -> Option<(Place, Record)> {
        self.find_rows_again(ledger);
        self.rows.remove(&storage)
    }

    /// Announced relations whose file the relation mapper knows.
    pub fn mapped(&self) -> &[(Oid, Storage)] {
        &self.mapped
    }

    /// The ledger itself may have been rewritten by the work, and its rows be elsewhere.
    fn find_rows_again(&mut self, ledger: &Ledger) {
        let storage = ledger.storage();
        if storage != self.ledger {
            let known = &self.rows;
            self.rows = ledger.open_intervals(&Snapshot::latest(), |record| {
                known.get(&record.storage).is_some_and(|(_, it)| it.xid == record.xid)
            });
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
        for (storage, (place, mut record)) in mem::take(&mut self.rows) {
            ledger.delete(place);
            record.finished_xid = Some(xid);
            record.effect = self.effects.get(&storage).copied().unwrap_or(Effect::Announced);
            closed.push(record);
        }
        if is_in_place(&self.work) {
            // What has another file than was announced, since somebody replaced it meanwhile, and
            // what is new: the work may have reached it.
            let late = self.not_announced();
            let mut records = records(&late, Some(xid));
            for (target, record) in late.iter().zip(&mut records) {
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

/// Closes the intervals that nobody holds open any more.
fn close_orphans(ledger: &Ledger, own: &[Marker]) -> Result<(), Failure> {
    let here = [0, database()];
    let is_here = |record: &Record| here.contains(&record.storage.database);
    let open = ledger.open_intervals(&Snapshot::latest(), is_here);
    let candidates: BTreeSet<u64> = open.values().map(|(_, record)| record.xid).collect();
    let mut orphaned = BTreeSet::new();
    for candidate in candidates {
        let marker = Marker { table: ledger.oid, number: candidate as u32 };
        if !own.contains(&marker) && marker.take_for_transaction() {
            orphaned.insert(candidate);
        }
    }
    if orphaned.is_empty() {
        return Ok(());
    }
    // Once more, now that the locks are had: its session may have closed it meanwhile.
    let rows = ledger.open_intervals(&Snapshot::latest(), |record| {
        is_here(record) && orphaned.contains(&record.xid)
    });
    let xid = xid();
    let mut closed = Vec::new();
    for (place, mut record) in rows.into_values() {
        ledger.delete(place);
        record.finished_xid = Some(xid);
        closed.push(record);
    }
    ledger.write(&closed);
    Ok(())
}
