//! Definitions and rows: beside each other where that is safe, else one after the other.

use std::path::Path;

use super::check::{Checked, Defined, moved};
use super::ddl::Describing;
use super::export::Rechecked;
use super::lock::{AtOnce, Budget, Dealt, Locked};
use super::stop::{Alarm, Stop};
use super::{AttemptEnd, Error, Options, Timings};
use crate::durable::Tree;

/// What both sides go by.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    pub options: &'a Options,
    pub directory: &'a Path,
    pub tree: &'a Tree,
    /// What has moved is left out and does not end the attempt.
    pub leave_out: bool,
}

impl Order<'_> {
    /// Exports as soon as `pg_dump` has locked what the workers lock, or, where somebody is in
    /// the way of that, when `pg_dump` has ended.
    pub fn run(
        self,
        mut describing: Describing,
        dealt: Dealt,
        timings: &mut Timings,
    ) -> Result<(Defined, Rechecked), AttemptEnd> {
        let dealt = match dealt.beside() {
            Some(tables) if describing.has_locked(&tables, self.options)? => {
                match dealt.lock_at_once(self.options, timings)? {
                    AtOnce::Locked(locked) => return self.beside(describing, locked, timings),
                    AtOnce::InTheWay(dealt) => dealt,
                }
            }
            _ => dealt,
        };
        self.one_after_the_other(describing, dealt, timings)
    }

    /// The workers check and export while `pg_dump` goes on. They hold locks on no table that
    /// `pg_dump` could still have to ask for, and wait for none of its.
    fn beside(
        self,
        describing: Describing,
        locked: Locked,
        timings: &mut Timings,
    ) -> Result<(Defined, Rechecked), AttemptEnd> {
        let stop = Stop::new(&locked.0);
        let pg_dump = describing.waker.clone();
        let mut timings_of_rows = Timings::default();
        let (defined, rechecked) = std::thread::scope(|scope| {
            let rows = scope.spawn(|| {
                // Not before this side has said why it fails: to find that out, it needs the
                // snapshot, which the other side holds.
                let alarm = Alarm::new(|| pg_dump.stop());
                let rechecked = self.export(locked, &stop, &mut timings_of_rows)?;
                // `pg_dump` still reads, mostly. What is on the disk by the time that it is done
                // need not be waited for then.
                self.tree.sync().map_err(Error::from)?;
                alarm.call_off();
                Ok(rechecked)
            });
            let alarm = Alarm::new(|| stop.set());
            let defined = self.define(describing, timings);
            if defined.is_ok() {
                alarm.call_off();
            } else {
                drop(alarm);
            }
            (defined, super::join(rows))
        });
        *timings += timings_of_rows;
        match (defined, rechecked) {
            (Ok(defined), Ok(rechecked)) => Ok((defined, rechecked)),
            // Where one has stopped the other, it is the one that tells why.
            (Err(AttemptEnd::Fatal(Error::Stopped)), Err(end)) => Err(end),
            // Both may fail of the same, such as a full disk, and only one may know that no other
            // attempt will do better. Any other failure of the rows may come of `pg_dump`'s:
            // with it, the snapshot has ended.
            (
                Err(AttemptEnd::Over(_)),
                Err(end @ AttemptEnd::Fatal(Error::File { .. } | Error::Panic)),
            ) => Err(end),
            (Err(end), _) | (_, Err(end)) => Err(end),
        }
    }

    fn define(self, describing: Describing, timings: &mut Timings) -> Result<Defined, AttemptEnd> {
        let described = describing.finish(self.options, self.directory, timings)?;
        let budget = Budget::begin(self.options);
        let defined = described.lock(self.options, budget, timings)?.check(timings)?;
        if !moved(&defined.changes).is_empty() && !self.leave_out {
            return Err(AttemptEnd::moved(defined.changes));
        }
        Ok(defined)
    }

    fn export(
        self,
        locked: Locked,
        stop: &Stop,
        timings: &mut Timings,
    ) -> Result<Rechecked, AttemptEnd> {
        self.export_checked(locked.check(timings)?, stop, timings)
    }

    fn export_checked(
        self,
        checked: Checked,
        stop: &Stop,
        timings: &mut Timings,
    ) -> Result<Rechecked, AttemptEnd> {
        if !moved(&checked.changes).is_empty() && !self.leave_out {
            return Err(AttemptEnd::moved(checked.changes));
        }
        let Self { options, directory, leave_out, .. } = self;
        let exported = checked.verified().export(options, directory, leave_out, stop, timings)?;
        let rechecked = exported.check_again(timings)?;
        if rechecked.has_moved() && !leave_out {
            return Err(AttemptEnd::moved(rechecked.into_changes()));
        }
        Ok(rechecked)
    }

    /// No worker asks for a lock before `pg_dump` has ended, and nothing is read before
    /// everything is locked and compared.
    fn one_after_the_other(
        self,
        describing: Describing,
        dealt: Dealt,
        timings: &mut Timings,
    ) -> Result<(Defined, Rechecked), AttemptEnd> {
        let Self { options, directory, leave_out, .. } = self;
        let described = describing.finish(options, directory, timings)?;
        let budget = Budget::begin(options);
        let locked = dealt.lock(budget, timings)?;
        let valued = described.lock(options, budget, timings)?;
        let checked = locked.check(timings)?;
        let defined = valued.check(timings)?;
        if !leave_out {
            let changes = [&checked.changes[..], &defined.changes[..]].concat();
            if !moved(&changes).is_empty() {
                return Err(AttemptEnd::moved(changes));
            }
        }
        let stop = Stop::new(&checked.locked.0);
        let rechecked = self.export_checked(checked, &stop, timings)?;
        Ok((defined, rechecked))
    }
}
