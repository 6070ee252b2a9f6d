//! PTX: parsed once with [`Module::parse`], run with [`run`].

mod fault;
mod launch;
mod module;

pub use fault::{Fault, PtxError, Trouble};
pub use launch::{Counts, Launch, Memory, Options, run};
pub use module::{Function, Global, Module, Param};
