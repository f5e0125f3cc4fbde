//! Waiting for a state that another process brings about: polled, bounded, and in this file
//! only. A test that slept for "long enough" instead would be slow on a fast machine and wrong
//! on a slow one.

use std::thread;
use std::time::{Duration, Instant};

use crate::Session;

/// How long anything may take before the test fails.
pub const DEADLINE: Duration = Duration::from_secs(60);

const INTERVAL: Duration = Duration::from_millis(5);

/// Asks until there is an answer; `None` if there was none within `limit`.
pub(crate) fn poll<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::sleep(INTERVAL);
    }
}

/// Runs `condition`, a query that gives one boolean at most, until it gives true. NULL, and no row,
/// is what a view shows of a session that waits for nothing, or is not there yet.
///
/// The query should read server views (`pg_locks`, `pg_stat_activity` ...). After [`DEADLINE`]
/// the test fails, and what every session of the server was doing is printed.
#[track_caller]
pub fn wait_until(session: &mut Session, condition: &str) {
    let asked = format!("SELECT COALESCE(({condition}), false)");
    if poll(DEADLINE, || session.yes(&asked).then_some(())).is_none() {
        let activity = session.activity();
        panic!("not true within {DEADLINE:?}: {condition}\n{activity}");
    }
}
