//! The planner: whether a configuration fits, and who gets how much, decided before anything is allocated.
#![forbid(unsafe_code)]

mod accepted;
mod failure;
mod input;
pub mod kv;
mod solve;

pub use accepted::{BlockGrant, Charge, MemoryPlan, PlanLine};
pub use failure::{PlanFailure, Refusal};
pub use input::{Amount, Config, Demand, Limits, Locks, Name, Need, PlanInput, Reprice, ReserveSource, Tier};
pub use kv::KvDtype;

/// Decides whether the configuration fits and who gets how much.
///
/// # Errors
/// [`PlanFailure`] with the arithmetic and what to change. Nothing has been allocated.
pub fn plan_memory(input: &PlanInput<'_>) -> Result<MemoryPlan, PlanFailure> {
    solve::solve(&input.limits, &input.config, input.demands)
}
