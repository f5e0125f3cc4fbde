//! The settings of the extension. Only superusers may change them.

use crate::fence::settings::{
    Setting, Word, define_choice, define_minutes, define_switch, reserve_prefix, value,
};

value!(ENABLED: bool = true, ENABLED_STORAGE);
value!(ON_RECORD_FAILURE: i32 = ERROR, ON_RECORD_FAILURE_STORAGE);
value!(RECORD_VACUUM: i32 = ALL, RECORD_VACUUM_STORAGE);
value!(LEDGER_RETENTION: i32 = 30 * 24 * 60, LEDGER_RETENTION_STORAGE);

const ERROR: i32 = 0;
const WARNING: i32 = 1;
const ALL: i32 = 0;
const REWRITES: i32 = 1;

/// Defines them. To be called once, when the library is loaded.
pub fn define() {
    define_switch(
        &Setting {
            name: c"stillpoint.enabled",
            description: c"Record in the ledger which storage is replaced.",
        },
        &ENABLED,
    );
    define_choice(
        &Setting {
            name: c"stillpoint.on_record_failure",
            description: c"What becomes of a statement that cannot be recorded.",
        },
        &ON_RECORD_FAILURE,
        &[Word { name: c"error", value: ERROR }, Word { name: c"warning", value: WARNING }],
    );
    define_choice(
        &Setting {
            name: c"stillpoint.record_vacuum",
            description: c"Whether VACUUM without FULL is recorded for heap tables.",
        },
        &RECORD_VACUUM,
        &[Word { name: c"all", value: ALL }, Word { name: c"rewrites", value: REWRITES }],
    );
    define_minutes(
        &Setting {
            name: c"stillpoint.ledger_retention",
            description: c"How long the ledger keeps what it has recorded.",
        },
        &LEDGER_RETENTION,
        1,
    );
    #[cfg(feature = "mutants")]
    mutant::define();
    reserve_prefix(c"stillpoint");
}

/// Whether anything is recorded.
pub fn is_recording_enabled() -> bool {
    ENABLED.get()
}

/// Whether a statement goes on, with a warning, where it cannot be recorded.
pub fn failures_are_warnings() -> bool {
    ON_RECORD_FAILURE.get() == WARNING
}

/// Whether VACUUM of a heap table is left out, unless it is FULL.
pub fn records_rewrites_only() -> bool {
    RECORD_VACUUM.get() == REWRITES
}

/// How long rows of the ledger are kept, in minutes.
pub fn retention_minutes() -> i64 {
    i64::from(LEDGER_RETENTION.get())
}

/// Deliberate defects, for builds that are to show that the tests find them.
#[cfg(feature = "mutants")]
pub mod mutant {
    use super::{Setting, Word, define_choice, value};

    value!(MUTANT: i32 = 0, MUTANT_STORAGE);

    const NO_CALLBACK: i32 = 1;
    const NO_TRUNCATE_HOOK: i32 = 2;
    const NO_VACUUM_HOOK: i32 = 3;

    pub(super) fn define() {
        define_choice(
            &Setting { name: c"stillpoint.mutant", description: c"A deliberate defect." },
            &MUTANT,
            &[
                Word { name: c"none", value: 0 },
                Word { name: c"no_callback", value: NO_CALLBACK },
                Word { name: c"no_truncate_hook", value: NO_TRUNCATE_HOOK },
                Word { name: c"no_vacuum_hook", value: NO_VACUUM_HOOK },
            ],
        );
    }

    /// The commit callback does nothing.
    pub fn has_no_callback() -> bool {
        MUTANT.get() == NO_CALLBACK
    }

    /// TRUNCATE is not announced.
    pub fn ignores_truncate() -> bool {
        MUTANT.get() == NO_TRUNCATE_HOOK
    }

    /// VACUUM is not announced.
    pub fn ignores_vacuum() -> bool {
        MUTANT.get() == NO_VACUUM_HOOK
    }
}
