//! What this session knows of its current transaction.
//!
//! Nothing here is borrowed while the server runs: a server function can call back, and what it
//! calls finds everything in its place.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use stillpoint_check::Oid;

use super::interval;
use crate::fence::is_running;

struct Session {
    /// The tag of the utility statement that began last.
    command: RefCell<Option<String>>,
    /// Relations that nothing but CLUSTER or VACUUM FULL works on in this transaction.
    keeps_rows_of: RefCell<BTreeSet<Oid>>,
    /// Whether the transaction has announced anything for itself.
    has_announced: Cell<bool>,
    /// The table whose announcement is that of its indexes and its TOAST table, too.
    announced_with: RefCell<BTreeMap<Oid, Oid>>,
    /// Whether the user was told that the transaction is not recorded.
    has_warned: Cell<bool>,
}

thread_local! {
    static SESSION: Session = const {
        Session {
            command: RefCell::new(None),
            keeps_rows_of: RefCell::new(BTreeSet::new()),
            has_announced: Cell::new(false),
            announced_with: RefCell::new(BTreeMap::new()),
            has_warned: Cell::new(false),
        }
    };
}

/// A utility statement begins. What another one has promised of rows does not hold any more: in
/// one transaction, or one within the other, they leave one pair of files and no proof.
pub fn begin_command(command: String) {
    SESSION.with(|session| {
        session.command.replace(Some(command));
        session.keeps_rows_of.take();
    });
}

/// The tag of the statement that began last.
pub fn command() -> Option<String> {
    SESSION.with(|session| session.command.borrow().clone())
}

/// The statement that has begun keeps every row version of these relations.
pub fn keep_rows_of(relations: BTreeSet<Oid>) {
    SESSION.with(|session| {
        session.keeps_rows_of.replace(relations);
    });
}

/// Whether the only statement of this transaction keeps every row version of that relation.
pub fn keeps_rows_of(relation: Oid) -> bool {
    SESSION.with(|session| session.keeps_rows_of.borrow().contains(&relation))
}

/// The transaction has announced something for itself.
pub fn note_announced() {
    SESSION.with(|session| session.has_announced.set(true));
}

/// Whether it has.
pub fn has_announced() -> bool {
    SESSION.with(|session| session.has_announced.get())
}

/// What the transaction announces of `table` is about `part` of it, too.
pub fn note_announced_with(part: Oid, table: Oid) {
    SESSION.with(|session| session.announced_with.borrow_mut().insert(part, table));
}

/// The table whose announcement is that of this relation, too, unless it was rolled back.
pub fn announced_with(part: Oid) -> Option<Oid> {
    SESSION.with(|session| session.announced_with.borrow().get(&part).copied())
}

/// The user is to be told that the transaction is not recorded. Gives whether it is the first
/// time.
pub fn note_warned() -> bool {
    SESSION.with(|session| !session.has_warned.replace(true))
}

/// The transaction has ended. A statement that has several goes on.
pub fn on_end() {
    SESSION.with(|session| {
        session.has_announced.set(false);
        session.announced_with.take();
        session.has_warned.set(false);
        if !interval::is_open() {
            session.keeps_rows_of.take();
            // A statement that commits and goes on, such as a procedure, is still the last one.
            if !is_running() {
                session.command.take();
            }
        }
    });
}
