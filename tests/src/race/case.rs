//! What a race case is: data only, so that tests and soak run the very same cases.

use super::Window;
use crate::Cluster;

/// How the dump checks its snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The extension is in the database, and its library is preloaded.
    Extension,
    /// Plain SQL over a second connection.
    Plain,
}

impl Check {
    /// Starts a cluster on which a dump can check so.
    #[track_caller]
    #[must_use]
    pub fn start_cluster(self) -> Cluster {
        match self {
            Self::Extension => Cluster::preloaded(),
            Self::Plain => Cluster::start(),
        }
    }

    /// The report's `check_method`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Extension => "extension",
            Self::Plain => "plain",
        }
    }
}

/// One thing that another session does.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Runs a statement to its end.
    Run(&'static str),
    /// As `Run`, in a session of that name, which stays open.
    In(&'static str, &'static str),
    /// Starts a statement in a session of its own, and goes on when it has ended or waits.
    Start(&'static str),
    /// Waits for the end of every started statement.
    Finish,
}

/// What must follow from a case's statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first attempt is the dump: its data is the snapshot's.
    Go,
    /// The first attempt is given up after the check, the second is the dump.
    Retry,
    /// As `Retry`, unless the check can tell that the rewrite kept every row for every
    /// snapshot: then `Go`.
    RowsKept,
    /// `pg_dump` stumbles over the change, the second attempt is the dump.
    RetryAfterDdl,
    /// The statements run in every attempt; then what moved is left out of the data.
    LeftOut,
}

impl Verdict {
    /// The verdict under `check`: only the ledger can tell what a rewrite has kept.
    #[must_use]
    pub fn under(self, check: Check) -> Self {
        match self {
            Self::RowsKept if check == Check::Extension => Self::Go,
            Self::RowsKept => Self::Retry,
            other => other,
        }
    }
}

/// A relation that the report must name.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// `schema.name`, as the snapshot has it.
    pub relation: &'static str,
    /// All reasons, in any order.
    pub reasons: &'static [&'static str],
    /// All ancestors, in any order.
    pub ancestors: &'static [&'static str],
    /// Told, but no cause for another attempt.
    pub harmless: bool,
}

impl Change {
    /// A change that makes the snapshot useless.
    #[must_use]
    pub const fn of(relation: &'static str, reasons: &'static [&'static str]) -> Self {
        Self { relation, reasons, ancestors: &[], harmless: false }
    }

    /// With these ancestors.
    #[must_use]
    pub const fn below(self, ancestors: &'static [&'static str]) -> Self {
        Self { ancestors, ..self }
    }

    /// A change that is told and does not matter.
    #[must_use]
    pub const fn harmless(relation: &'static str, reasons: &'static [&'static str]) -> Self {
        Self { relation, reasons, ancestors: &[], harmless: true }
    }
}

/// One race: what is there, what is committed after the snapshot, and what must follow.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// A sentence, in the form of a test's name.
    pub name: &'static str,
    /// What the database has besides the common tables.
    pub setup: &'static [&'static str],
    /// Options of the dump.
    pub arguments: &'static [&'static str],
    /// The relations that the options ask for; empty for all.
    pub asked_for: &'static [&'static str],
    /// What happens before the dump starts.
    pub before: &'static [Step],
    /// When the statements run.
    pub window: Window,
    /// What is committed there.
    pub steps: &'static [Step],
    /// What follows.
    pub verdict: Verdict,
    /// How many attempts there are if the last one fails like the others.
    pub attempts: usize,
    /// All relations that the report names for an attempt in which the statements ran.
    pub changes: &'static [Change],
    /// Parts of the server's messages that the case may cause.
    pub logged: &'static [&'static str],
}

impl Case {
    /// A case of which nothing is said yet.
    pub const NEW: Self = Self {
        name: "",
        setup: &[],
        arguments: &[],
        asked_for: &[],
        before: &[],
        window: Window::BeforeLocks,
        steps: &[],
        verdict: Verdict::Go,
        attempts: 3,
        changes: &[],
        logged: &[],
    };
}
