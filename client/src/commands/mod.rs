//! The commands, a module each.

pub mod dump;
