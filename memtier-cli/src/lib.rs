//! The command `memtier`, as a library so that its parts can be tested.
//!
//! Everything that decides is in [`memtier::plan`] and [`memtier_model`]; here is what an operator types and reads.
#![forbid(unsafe_code)]

pub mod args;
pub mod command;
pub mod compare;
pub mod device;
pub mod help;
pub mod json;
pub mod open;
pub mod picture;
pub mod planned;
pub mod suggest;
pub mod text;
pub mod units;
