//! Definitions and rows: beside each other where that is safe, else one after the other.

use std::path::Path;

use super::check::{Defined, moved};
use super::ddl::Describing;
use super::export::Exported;
use super::lock::{Budget, Dealt, Locked};
use super::stop::{Alarm, Stop};
use super::{AttemptEnd, Error, Options, Timings};

/// What both sides go by.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    pub options: &'a Options,
    pub directory: &'a Path,
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
    ) -> Result<(Defined, Exported), AttemptEnd> {
        let dealt = match dealt.beside() {
            Some(tables) if describing.has_locked(&tables, self.options)? => {
                match dealt.lock_at_once(self.options, timings)? {
                    Ok(locked) => return self.beside(describing, locked, timings),
                    Err(dealt) => dealt,
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
    ) -> Result<(Defined, Exported), AttemptEnd> {
        let stop = Stop::new(&locked.0);
        let pg_dump = describing.waker.clone();
        let mut timings_of_rows = Timings::default();
        let (defined, exported) = std::thread::scope(|scope| {
            let rows = scope.spawn(|| {
                // Not before this side has said why it fails: to find that out, it needs the
                // snapshot, which the other side holds.
                let alarm = Alarm::new(|| pg_dump.stop());
                let exported = self.export(locked, &stop, &mut timings_of_rows)?;
                alarm.call_off();
                Ok(exported)
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
        match (defined, exported) {
            (Ok(defined), Ok(exported)) => Ok((defined, exported)),
            // Where one has stopped the other, it is the one that tells why.
            (Err(AttemptEnd::Fatal(Error::Stopped)), Err(end)) => Err(end),
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
    ) -> Result<Exported, AttemptEnd> {
        let checked = locked.check(timings)?;
        if !moved(&checked.changes).is_empty() && !self.leave_out {
            return Err(AttemptEnd::moved(checked.changes));
        }
        let Self { options, directory, leave_out } = self;
        checked.verified().export(options, directory, leave_out, stop, timings)
    }

    /// No worker asks for a lock before `pg_dump` has ended, and nothing is read before
    /// everything is locked and compared.
    fn one_after_the_other(
        self,
        describing: Describing,
        dealt: Dealt,
        timings: &mut Timings,
    ) -> Result<(Defined, Exported), AttemptEnd> {
        let Self { options, directory, leave_out } = self;
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
        let exported = checked.verified().export(options, directory, leave_out, &stop, timings)?;
        Ok((defined, exported))
    }
}
