//! The race cases, by what is raced against.

mod catalog;
mod harmless;
mod names;
mod partitions;
mod rewrites;
mod starvation;

use super::Case;

/// A family of cases: its name and its cases.
pub type Family = (&'static str, &'static [Case]);

/// All families.
pub const FAMILIES: [Family; 6] = [
    ("rewrites", rewrites::CASES),
    ("names", names::CASES),
    ("partitions", partitions::CASES),
    ("harmless", harmless::CASES),
    ("catalog", catalog::CASES),
    ("starvation", starvation::CASES),
];

/// All cases of a family.
///
/// # Panics
///
/// If there is no family of that name.
#[track_caller]
#[must_use]
pub fn family(name: &str) -> &'static [Case] {
    let found = FAMILIES.iter().find(|family| family.0 == name);
    found.unwrap_or_else(|| panic!("no family {name:?}")).1
}
