//! The commands, a module each.

pub mod dump;
pub mod ledger;
pub mod restore;
pub mod verify;
