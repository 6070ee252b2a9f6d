//! An allocation cache that is bounded by what the card has left.
//!
//! Recycling freed buffers saves calls into the driver, and holds memory nobody uses. The cache this one learns from was
//! bounded by a constant 1 GiB on a card with 262 MiB left; the bound was never reached, nothing was ever evicted, and the
//! run died after 19 steps with 236.9 MiB held. Here the bound follows from what is free ([`capacity_for`]), is computed
//! again while the model runs, and bites at once.
//!
//! A bound is not the cure for a tensor that grows with each step: every step then files sizes that are never asked for
//! again, and the cache says so ([`Warning`]). The cure is storage that is planned at its largest and written in place, which
//! leaves nothing to recycle; see [`AllocCache`] for the few places that remain.
#![forbid(unsafe_code)]

mod alloc_cache;
mod growth;
mod policy;
#[cfg(test)]
mod tests;

pub use alloc_cache::{AllocCache, BakedIn, CacheStats, Evicted, NoGraphs, StepEnd};
pub use growth::{VAIN_STEPS, Warning};
pub use policy::{BadOverride, CEILING, Capacity, FLOOR, Override, REARM_STEPS, capacity_for, plan_capacity};
