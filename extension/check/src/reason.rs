//! The ways in which a relation can differ between two snapshots.

use std::fmt;

/// One way in which a relation differs between a snapshot and the latest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The relation is no longer in the catalog.
    Dropped,
    /// It has another name, or stands in another schema, or its schema has another name.
    Renamed,
    /// Its name, as the snapshot has it, now means another relation.
    Recreated,
    /// Its storage is another file: what was written before the replacing transaction is not
    /// there for older snapshots, unless the rewrite kept every tuple's visibility.
    Replaced,
    /// Its columns differ in number, name, type, type modifier, or in being generated.
    Redefined,
    /// It has a parent that it did not have.
    Attached,
    /// It no longer has a parent that it had.
    Detached,
}

impl Reason {
    /// Every reason, in the order in which they are reported.
    pub const ALL: [Self; 7] = [
        Self::Dropped,
        Self::Renamed,
        Self::Recreated,
        Self::Replaced,
        Self::Redefined,
        Self::Attached,
        Self::Detached,
    ];

    /// The name under which SQL functions, reports and manifests give the reason.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Renamed => "renamed",
            Self::Recreated => "recreated",
            Self::Replaced => "replaced",
            Self::Redefined => "redefined",
            Self::Attached => "attached",
            Self::Detached => "detached",
        }
    }

    /// The reason of that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of reasons; empty for a relation that has not changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reasons(u8);

impl Reasons {
    /// Whether nothing has changed.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set holds `reason`.
    #[must_use]
    pub const fn contains(self, reason: Reason) -> bool {
        self.0 & reason.bit() != 0
    }

    /// Adds `reason`.
    pub const fn insert(&mut self, reason: Reason) {
        self.0 |= reason.bit();
    }

    /// The reasons in the set, in the order of [`Reason::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Reason> {
        Reason::ALL.into_iter().filter(move |reason| self.contains(*reason))
    }
}

impl FromIterator<Reason> for Reasons {
    fn from_iter<I: IntoIterator<Item = Reason>>(reasons: I) -> Self {
        let mut set = Self::default();
        for reason in reasons {
            set.insert(reason);
        }
        set
    }
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, reason) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            f.write_str(reason.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_found_by_its_name() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_name(reason.as_str()), Some(reason));
        }
        assert_eq!(Reason::from_name("moved"), None);
    }

    #[test]
    fn a_set_gives_its_reasons_once_and_in_order() {
        let set: Reasons =
            [Reason::Recreated, Reason::Dropped, Reason::Recreated].into_iter().collect();
        assert_eq!(set.to_string(), "dropped, recreated");
        assert!(set.contains(Reason::Dropped));
        assert!(!set.contains(Reason::Replaced));
        assert!(Reasons::default().is_empty());
    }
}
