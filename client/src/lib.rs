//! stillpoint's client: dumps whose every table is proven to hold what one snapshot promises.
//!
//! The library knows no command line. [`commands`] has a module for each command; the others are
//! what these are made of.

mod archive;
pub mod codec;
pub mod commands;
pub mod connect;
mod durable;
pub mod error;
pub mod exit;
pub mod interrupt;
pub mod log;
mod manifest;
mod pattern;
mod programs;
mod quote;
pub mod selection;
mod server;
mod wire;
