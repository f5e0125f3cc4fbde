//! The commands, a module each.

pub mod dump;
pub mod restore;
pub mod verify;
