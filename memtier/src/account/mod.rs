//! Account first, allocate afterwards: budgets, size classes, buffers that come back under the same number, graphs that are
//! not built twice.
//!
//! For the part of an engine whose buffers are not known when the plan is made: a graph per parameter set, intermediate
//! tensors of changing shapes. What is known belongs into the plan and into typed storage.
//!
//! Every request is charged (weights, pool and its own size class against the budget) before the backend is asked, and a
//! refusal names these four numbers. Released buffers stay reserved by (backend, class) and are handed out smallest number
//! first, so a rebuilt graph of the same topology has the same addresses and a captured one stays valid.
//!
//! ```
//! use memtier::Bytes;
//! use memtier::account::{ClassPool, DeviceMemory, Node, Placement, Storage, decide_budget};
//!
//! // The memory of this example is a number; a backend's handle in an engine.
//! let mut addresses = (1..).map(|n| n * 0x1_0000_u64);
//! let mut pool = ClassPool::new();
//! let gpu = pool.add_backend("cuda", decide_budget(None, &DeviceMemory::Reported(Bytes::gib(8))));
//! pool.set_weights(gpu, Bytes::mib(4076));
//!
//! let node = |len, storage, reads: &[usize]| Node {
//!     backend: gpu, len: Bytes::new(len), storage, reads: reads.to_vec(), output: false,
//! };
//! let graph = [
//!     node(20_000, Storage::Input, &[]),
//!     node(20_000, Storage::Computed, &[0]),
//!     node(10_000, Storage::Alias(1), &[1]),
//!     Node { output: true, ..node(20_000, Storage::Computed, &[2]) },
//! ];
//! let mut build = |pool: &mut ClassPool<u64>| Placement::of(&graph, pool, |_, _| addresses.next().ok_or("no memory"));
//! let first = build(&mut pool)?;
//! let slots: Vec<_> = (0..4).map(|node| first.slot(node)).collect();
//! first.release(&mut pool).unwrap();
//!
//! let created = pool.created();
//! let second = build(&mut pool)?;
//! assert_eq!(slots, (0..4).map(|node| second.slot(node)).collect::<Vec<_>>());
//! assert_eq!(pool.created(), created); // no buffer was created, so what was captured stays valid
//!
//! let refused = pool.take(gpu, Bytes::gib(3), |_| Err::<u64, _>("never asked")).unwrap_err();
//! assert!(refused.to_string().contains("weights 4076.00 MiB"), "{refused}");
//! second.release(&mut pool).unwrap();
//! # Ok::<(), memtier::account::PlaceError<&str>>(())
//! ```
#![forbid(unsafe_code)]

mod budget;
mod class;
mod graph_cache;
mod place;
mod pool;
mod report;
#[cfg(test)]
mod tests;

pub use budget::{BadSize, Budget, BudgetDecision, DeviceMemory, decide_budget, parse_size};
pub use class::SizeClass;
pub use graph_cache::{DEFAULT_GRAPHS, GraphCache, GraphStats, Switched};
pub use place::{Life, Node, PlaceError, Placement, Storage, TopologyError, lives};
pub use pool::{BackendId, Buf, ClassPool, Length, OutsideLength, OverBudget, SlotId, TakeError};
pub use report::AccountReport;

use crate::units::Bytes;

/// MiB with two decimals, cut off: a refusal by a few KiB must not read "12 of 12 MiB".
pub(crate) fn mib(bytes: Bytes) -> String {
    let (whole, rest) = (bytes.count() >> 20, bytes.count() & ((1 << 20) - 1));
    format!("{whole}.{:02}", (rest * 100) >> 20)
}
