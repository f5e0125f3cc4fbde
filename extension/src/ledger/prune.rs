//! `prune()`: takes out of the ledger what nobody needs any more.
//!
//! A row is needed by a bookmark that has not seen its work finished. Which bookmark that is, the
//! numbers of transactions tell, never the clock: with a row that goes, every bookmark goes that
//! would need it, so that no answer lacks it silently.

use std::collections::BTreeSet;

use super::bookmark::{Token, refuse_unless_alone};
use super::consumer::{Consumer, needs};
use super::own_tables::{Bookmarks, Consumers};
use super::record::Record;
use super::table::Ledger;
use crate::fence::catalog::database;
use crate::fence::transaction::now;
use crate::fence::{Answer, Call, Failure, Place};
use crate::settings;

const MICROSECONDS_PER_MINUTE: i64 = 60_000_000;

/// The SQL function. Rows of work that goes on stay, however old. Those that the database has got
/// from its template go: they are about the template's files.
pub fn prune(_: &Call) -> Result<Answer, Failure> {
    refuse_unless_alone(c"stillpoint.prune()");
    let bookmarks = Bookmarks::in_line()?;
    let consumers = Consumers::open_for_writing(&bookmarks)?;
    let Some(ledger) = Ledger::open_for_writing()? else { return Ok(Answer::bigint(0)) };
    let oldest = now() - settings::retention_minutes() * MICROSECONDS_PER_MINUTE;
    give_up_older(&bookmarks, &consumers, oldest);
    let needed = needed_alone(&bookmarks, &consumers);
    let here = [0, database()];
    let pruned = ledger.prune(|record| {
        record.recorded_at < oldest
            || !here.contains(&record.storage.database)
            || is_passed(record, needed.as_deref())
    });
    give_up_incomplete(&bookmarks, &consumers, &pruned);
    Ok(Answer::bigint(i64::try_from(pruned.len()).unwrap_or(i64::MAX)))
}

/// A part of what all consumers have passed, as much as whoever ends a backup may be kept waiting
/// for.
pub fn what_all_have_passed(bookmarks: &Bookmarks, consumers: &Consumers) -> Result<(), Failure> {
    const AT_MOST: usize = 10_000;

    let Some(needed) = needed_alone(bookmarks, consumers) else { return Ok(()) };
    let Some(ledger) = Ledger::open_for_writing()? else { return Ok(()) };
    let horizon = needed.iter().map(Token::horizon).min().unwrap_or(0);
    ledger.prune_below(horizon, AT_MOST);
    Ok(())
}

/// The bookmarks, if nothing else than those keeps rows that are younger than the retention. That
/// is so if there are consumers, and each has finished a backup.
fn needed_alone(bookmarks: &Bookmarks, consumers: &Consumers) -> Option<Vec<Token>> {
    let consumers: Vec<Consumer> = consumers.all().into_iter().map(|(_, it)| it).collect();
    let has_base = |consumer: &Consumer| consumer.base.is_some() || consumer.lost;
    if consumers.is_empty() || !consumers.iter().all(has_base) {
        return None;
    }
    let tokens = bookmarks.all().into_iter().map(|(_, token)| token);
    Some(tokens.filter(|token| token.database == database()).collect())
}

fn is_passed(record: &Record, needed: Option<&[Token]>) -> bool {
    let (Some(xid), Some(needed)) = (record.finished_xid, needed) else { return false };
    needed.iter().all(|token| token.has_seen(xid))
}

/// Gives up the bookmarks that are older than the ledger is to reach, and those that nobody can
/// use any more: of the template, or of a backup that was given up.
fn give_up_older(bookmarks: &Bookmarks, consumers: &Consumers, oldest: i64) {
    let all = consumers.all();
    let is_needed = |token: &Token| match &token.consumer {
        None => true,
        Some(_) => all.iter().any(|(_, consumer)| needs(consumer, token)),
    };
    let useless = |token: &Token| {
        token.taken_at < oldest || token.database != database() || !is_needed(token)
    };
    give_up(bookmarks, consumers, useless);
}

/// Gives up the bookmarks that would need a row that has been taken out.
fn give_up_incomplete(bookmarks: &Bookmarks, consumers: &Consumers, pruned: &[u64]) {
    let pruned: BTreeSet<u64> = pruned.iter().copied().collect();
    give_up(bookmarks, consumers, |token| {
        pruned.range(token.horizon()..).any(|xid| !token.has_seen(*xid))
    });
}

fn give_up(bookmarks: &Bookmarks, consumers: &Consumers, useless: impl Fn(&Token) -> bool) {
    let mut given_up = BTreeSet::new();
    for (place, token) in bookmarks.all() {
        if useless(&token) {
            bookmarks.delete(place, &token);
            given_up.insert(token.id);
        }
    }
    let is_given_up = |id: &Option<String>| id.as_ref().is_some_and(|id| given_up.contains(id));
    let all: Vec<(Place, Consumer)> = consumers.all();
    for (place, mut consumer) in all {
        let (base, begun) = (is_given_up(&consumer.base), is_given_up(&consumer.begun));
        if base {
            consumer.base = None;
            consumer.lost = true;
        }
        if begun {
            consumer.begun = None;
        }
        if base || begun {
            consumers.replace(place, &consumer);
        }
    }
}
