//! PTX: parsed once with [`Module::parse`], run with [`run`].

#![allow(clippy::needless_range_loop, reason = "lanes of several rows at once: what vectorises, and reads best")]
#![allow(clippy::precedence, reason = "shifts and masks of bits, as the format's tables have them")]

mod allocate;
mod code;
mod exec;
mod fault;
mod floats;
mod launch;
mod module;
mod parse;

pub use fault::{Fault, PtxError, Trouble};
pub use launch::{Counts, Launch, Memory, Options, run};
pub use module::{Function, Global, Module, Param};
