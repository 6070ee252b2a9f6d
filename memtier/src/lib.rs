//! The memory layer of a GPU inference engine: tiers, phases, spans, pools and a planner, checked at compile time.

pub mod plan;
mod units;

pub use units::{Blocks, Bytes, Layers, Overflow, Tokens};
