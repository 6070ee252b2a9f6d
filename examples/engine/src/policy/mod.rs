//! Memory policy of the engine: what memtier's `account`, `pressure` and `admission` decide, and where it takes effect.
//!
//! ```text
//! budget.rs      how much of the device may be used, and whether the host survives the load
//! watch.rs       the process's one watcher
//! cost.rs        what a prompt costs: measured anchors from a file, or the scratch formula
//! cached.rs      blocks that only a cache holds, given up on demand
//! decision.rs    what was decided, for the report
//! governor.rs    the limits that hold for a step
//! ```
//!
//! Nothing here moves or frees what a step in flight reads: limits are latched at step boundaries, and take effect where new
//! state is created.

mod budget;
mod cached;
mod cost;
mod decision;
mod governor;
mod watch;

pub use budget::{device_budget, plan_budget};
pub use cached::CachedBlocks;
pub use cost::{computed_costs, read_costs};
pub use decision::{Decision, Decisions};
pub(crate) use governor::Governor;
pub use watch::{process_watcher, read_pressure_config};
