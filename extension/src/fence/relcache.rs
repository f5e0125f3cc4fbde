//! Which relations a transaction has touched, as the server tells its own caches.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use stillpoint_check::Oid;

use super::pg_sys;

/// Relations whose cache entries were invalidated while a transaction had a number.
#[derive(Debug, Default)]
pub struct Touched {
    /// Those that were named.
    pub relations: BTreeSet<Oid>,
    /// Whether all of them were, so that the names are not known.
    pub all: bool,
}

/// The transaction to which the set belongs, by the lower half of its number, and the set.
struct Collected {
    xid: Cell<u32>,
    all: Cell<bool>,
    relations: RefCell<BTreeSet<Oid>>,
}

thread_local! {
    static COLLECTED: Collected = const {
        Collected { xid: Cell::new(0), all: Cell::new(false), relations: RefCell::new(BTreeSet::new()) }
    };
}

/// Begins to collect. To be called once, by `_PG_init`.
pub(super) fn collect() {
    // SAFETY: the library is loaded once, by the one thread of the server.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(on_invalidation), pg_sys::Datum::null());
    }
}

/// Called by the server for every relation whose definition anybody has changed, within
/// transactions and outside, at any moment (`LocalExecuteInvalidationMessage()` in inval.c). It
/// does nothing else than note the number: catalogs cannot be read here.
unsafe extern "C-unwind" fn on_invalidation(_: pg_sys::Datum, relation: pg_sys::Oid) {
    // SAFETY: reads a variable of the backend. It is not called through the boundary that the
    // bindings make, because it cannot fail and this is called for every change of others, too.
    let xid = unsafe { raw_xid_if_any() }.into_inner();
    if xid == 0 {
        return;
    }
    COLLECTED.with(|collected| {
        if collected.xid.replace(xid) != xid {
            // What an aborted transaction has left behind.
            collected.all.set(false);
            collected.relations.take();
        }
        match collected.relations.try_borrow_mut() {
            Ok(mut relations) if relation != pg_sys::InvalidOid => {
                relations.insert(relation.to_u32());
            }
            _ => collected.all.set(true),
        }
    });
}

unsafe extern "C-unwind" {
    #[link_name = "GetTopTransactionIdIfAny"]
    fn raw_xid_if_any() -> pg_sys::TransactionId;
}

/// What the transaction of that number has touched until now; begins anew.
pub fn take_touched(xid: u64) -> Touched {
    COLLECTED.with(|collected| {
        let (relations, all) = (collected.relations.take(), collected.all.take());
        if collected.xid.get() == xid as u32 {
            Touched { relations, all }
        } else {
            Touched::default()
        }
    })
}

/// Forgets all: a transaction has ended.
pub fn forget_touched() {
    COLLECTED.with(|collected| {
        collected.xid.set(0);
        collected.all.set(false);
        // A set that has become large is not kept.
        drop(collected.relations.take());
    });
}
