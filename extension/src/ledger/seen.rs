//! Which transactions a snapshot has seen, in a form that can be written down.

use std::fmt;
use std::str::FromStr;

use crate::fence::Snapshot;

/// What a snapshot has seen, as `pg_snapshot` writes it: `XMIN:XMAX:XIP,...`. The default has
/// seen nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// All transactions below this number were over.
    all_below: u64,
    /// This one and all later ones were not.
    none_from: u64,
    /// Those between that were not over, ascending.
    running: Vec<u64>,
}

impl Seen {
    /// Whether that transaction was over. What it has written was there then, if it has
    /// committed.
    pub fn contains(&self, xid: u64) -> bool {
        xid < self.all_below || (xid < self.none_from && self.running.binary_search(&xid).is_err())
    }

    /// All transactions below it were over.
    pub const fn horizon(&self) -> u64 {
        self.all_below
    }
}

impl From<&Snapshot> for Seen {
    fn from(snapshot: &Snapshot) -> Self {
        let (all_below, none_from, running) = snapshot.limits();
        Self { all_below, none_from, running }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.all_below, self.none_from)?;
        for (position, xid) in self.running.iter().enumerate() {
            write!(f, "{}{xid}", if position == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// The text is not one of ours.
#[derive(Clone, Copy, Debug)]
pub struct Unreadable;

impl FromStr for Seen {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let number = |text: &str| text.parse().map_err(|_| Unreadable);
        let mut parts = text.splitn(3, ':');
        let mut next = || parts.next().ok_or(Unreadable);
        let (all_below, none_from) = (number(next()?)?, number(next()?)?);
        let running = next()?.split(',').filter(|xid| !xid.is_empty()).map(number);
        let mut running = running.collect::<Result<Vec<u64>, _>>()?;
        running.sort_unstable();
        Ok(Self { all_below, none_from, running })
    }
}
