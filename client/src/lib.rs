//! stillpoint's client: dumps whose every table is proven to hold what one snapshot promises.
//!
//! The library knows no command line. [`commands`] has a module for each command; the others are
//! what these are made of.

pub mod archive;
pub mod codec;
pub mod commands;
pub mod connect;
pub mod durable;
pub mod error;
pub mod exit;
pub mod interrupt;
pub mod log;
pub mod manifest;
pub mod pattern;
pub mod programs;
pub mod quote;
pub mod selection;
pub mod server;
