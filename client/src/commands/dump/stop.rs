//! Stopping what goes on in parallel when a part of it has failed: nothing of this attempt is of
//! use any more.

use std::sync::atomic::{AtomicBool, Ordering};

use super::lock::Tables;
use crate::wire::{self, CancelToken};

/// What the workers that export go by.
pub struct Stop {
    is_set: AtomicBool,
    sessions: Vec<CancelToken>,
}

impl Stop {
    /// For the workers' sessions.
    pub fn new(tables: &Tables) -> Self {
        let sessions = tables.workers.iter().map(|worker| worker.session.canceller()).collect();
        Self { is_set: AtomicBool::new(false), sessions }
    }

    /// Whether to stop. Whoever does so for that reason alone has not failed.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Stops all workers.
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
        self.cancel();
    }

    /// Ends what the workers' sessions are doing just now. One that was between two statements
    /// may begin another: this wants repeating until all have stopped.
    pub fn cancel(&self) {
        wire::cancel(self.sessions.iter().cloned());
    }
}

/// Does something when it is dropped, as by an early return or a panic, unless that was called
/// off.
pub struct Alarm<F: FnMut()>(Option<F>);

impl<F: FnMut()> Alarm<F> {
    pub const fn new(act: F) -> Self {
        Self(Some(act))
    }

    /// All went well.
    pub fn call_off(mut self) {
        self.0 = None;
    }
}

impl<F: FnMut()> Drop for Alarm<F> {
    fn drop(&mut self) {
        if let Some(act) = &mut self.0 {
            act();
        }
    }
}
