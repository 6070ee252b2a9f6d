//! The planner: whether a configuration fits, and who gets how much, decided before anything is allocated.
//!
//! [`plan_memory`] is arithmetic over plain data. It asks no device, reads no file, uses no floating point, and gives
//! byte-identical output for equal input. Either every mandatory [`Demand`] is met within the budget, down to the last
//! tenant, or the configuration is refused before anything is loaded, with every line and with what to change.
//!
//! ```
//! use memtier::plan::{Amount, Config, Demand, Limits, PlanInput, Tier, plan_memory};
//! use memtier::{Blocks, Bytes, Tokens};
//!
//! let limits = Limits { context: Bytes::mib(500), library_reserve: Bytes::mib(300), ..Limits::new("cuda", Bytes::gib(8)) };
//! let demands = [
//!     Demand::bytes("model weights", Tier::ModelResident, "cuda", Bytes::mib(4076)),
//!     Demand::bytes("workspaces", Tier::EnginePersistent, "cuda", Bytes::mib(397)),
//!     Demand::pool(
//!         "KV",
//!         "cuda",
//!         Amount::elastic_pool(Bytes::kib(1152), Tokens::new(16), Blocks::new(256), Blocks::new(2048)),
//!     ),
//! ];
//! let config = Config { max_batch: 8, ..Config::default() };
//!
//! let plan = plan_memory(&PlanInput::new(limits, config, &demands))?;
//! assert_eq!(plan.line("KV").and_then(|line| line.blocks).map(|kv| kv.granted), Some(Blocks::new(2048)));
//! assert_eq!(plan.left(), Bytes::mib(8192 - 500 - 300 - 4076 - 397 - 2304));
//!
//! let small = Limits { budget: Bytes::gib(5), ..limits };
//! let refused = plan_memory(&PlanInput::new(small, config, &demands)).unwrap_err();
//! assert_eq!(refused.shortfall(), Bytes::mib(500 + 300 + 4076 + 397 + 288 - 5120));
//! println!("{}", refused.report());
//! # Ok::<(), memtier::plan::PlanFailure>(())
//! ```
//!
//! # Who goes first
//!
//! Memory is granted in this order: context, library reserve and graphs; then the engine's own buffers; the weights and
//! the caches the model cannot run without; forward scratch; fixed pools (sliding window, recurrent state, ring,
//! snapshots); the floor of the elastic pools, one advertised sequence; optional weight caches; elastic pools up to what
//! the configuration can use; whatever else is made of blocks and can grow (an expert cache gives way first).
//!
//! Optional caches come after the floor and before the rest of the KV pool. Sized last, they starve: an engine whose caches
//! found no room after the KV pool decoded about seven times slower, while the pool held blocks no request could reach. Sized
//! first, they can starve the pool, which then cannot hold one request. Above the floor a smaller pool costs concurrency,
//! and the plan says so.
//!
//! # Loading is not serving
//!
//! A [`Need::Transient`] demand must fit while the model loads, beside everything but pools and optional caches, which are
//! opened when the load is over. It is a line of its own, no part of [`MemoryPlan::total`], and takes nothing from any
//! pool.
#![forbid(unsafe_code)]

mod accepted;
mod failure;
mod input;
mod json;
pub mod kv;
pub mod kv_layout;
mod levers;
pub mod llama_cpp;
pub mod loan;
pub mod offload;
mod report;
mod solve;
#[cfg(test)]
mod tests;

pub use accepted::{BlockGrant, Charge, MemoryPlan, PlanLine};
pub use failure::{PlanFailure, Refusal};
pub use input::{Amount, Config, Demand, Limits, Locks, Name, Need, PlanInput, Reprice, ReserveSource, Tier};
pub use kv::KvDtype;
pub use levers::{Combination, Knob, Lever, Pair, Value};

/// Decides whether the configuration fits and who gets how much.
///
/// Pure: no device is asked, nothing is allocated but the answer, and equal inputs give equal answers.
///
/// # Errors
/// [`PlanFailure`] when the mandatory demands and the floors of the pools do not fit the budget, or when a size leaves the
/// range of 64 bits. It carries every line and what to change; levers need [`PlanInput::reprice`].
pub fn plan_memory(input: &PlanInput<'_>) -> Result<MemoryPlan, PlanFailure> {
    solve::solve(input)
}
