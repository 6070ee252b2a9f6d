//! The memory report: what was planned, what is there, what is used, and what nobody claims.

use std::{fmt, sync::Weak};

use super::{Engine, Phase, Planning, Serving};
use crate::{
    backend::DeviceReport,
    bundle::Bundle,
    generated::Gates,
    plan::{self, MemoryPlan},
    record::ScratchStack,
    units::{Blocks, Bytes},
};

/// What a device holds for an engine, tier by tier. `Display` prints it as a table in MiB.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemoryReport {
    /// The device's own books.
    pub device: DeviceReport,
    /// One entry for each tier that has lines or memory, in the order of the plan.
    pub tiers: Vec<TierReport>,
    /// One entry for each pool of the bundle.
    pub pools: Vec<PoolReport>,
    /// Live on the device and in none of the tiers: other engines, page rounding, what an earlier model's survivors hold
    /// beyond this plan.
    pub unattributed: Bytes,
    /// Graphs that exist, of those that the plan charged.
    pub graphs: (u32, u32),
    /// Names of lines that were planned and never carved.
    pub unclaimed: Vec<String>,
}

/// One tier of a [`MemoryReport`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TierReport {
    /// Which tier.
    pub tier: plan::Tier,
    /// What the plan granted it.
    pub planned: Bytes,
    /// What is committed for it.
    pub committed: Bytes,
    /// What of that is in use now: carved, held by requests. Scratch is in use during a step only.
    pub used: Bytes,
    /// The most that was in use. For pools only known when it was asked for.
    pub peak: Bytes,
}

/// One pool of a [`MemoryReport`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PoolReport {
    /// Its kind.
    pub name: &'static str,
    /// Blocks with memory.
    pub committed: Blocks,
    /// Blocks that requests, prefixes or page tables hold.
    pub held: Blocks,
    /// Size of one block.
    pub block: Bytes,
}

struct Parts<'r> {
    plan: &'r MemoryPlan,
    pools: Vec<PoolReport>,
    graphs: (u32, u32),
    unclaimed: Vec<String>,
}

fn pools<B: Bundle>(bundle: &B) -> Vec<PoolReport> {
    let mut pools = Vec::new();
    bundle.gates(&mut Gates(&mut |pool| {
        let Some(core) = pool.core() else { return };
        let committed = core.committed();
        pools.push(PoolReport {
            name: core.name(),
            committed,
            held: committed.beyond(core.free()),
            block: core.block_bytes(),
        });
    }));
    pools
}

impl<B: Bundle> Engine<Planning<B>> {
    /// What the device holds now.
    pub fn memory_report(&self) -> MemoryReport {
        let Planning { graphs, owned, plan, grants } = &self.phase;
        let names = plan.lines();
        let unclaimed = grants.unclaimed().filter_map(|index| Some(names.get(index)?.name.to_string())).collect();
        let graphs = (graphs.live(), graphs.planned);
        self.assemble(Parts { plan, pools: pools(owned), graphs, unclaimed })
    }
}

impl<B: Bundle> Engine<Serving<B>> {
    /// What the device holds now.
    pub fn memory_report(&self) -> MemoryReport {
        let Serving { graphs, owned, plan, unclaimed } = &self.phase;
        let graphs = (graphs.live(), graphs.planned);
        self.assemble(Parts { plan, pools: pools(owned), graphs, unclaimed: unclaimed.clone() })
    }
}

impl<Ph: Phase> Engine<Ph> {
    fn assemble(&self, parts: Parts<'_>) -> MemoryReport {
        let Parts { plan, pools, graphs, unclaimed } = parts;
        let device = self.core.devices[0].report();
        let scratch: Vec<_> = self.core.scratch.iter().filter_map(Weak::upgrade).collect();
        let sum = |parts: &mut dyn Iterator<Item = Bytes>| Bytes::sum(parts).unwrap_or(Bytes::MAX);
        let of_pools = |count: fn(&PoolReport) -> Blocks| {
            sum(&mut pools.iter().map(|pool| pool.block.times(count(pool).count()).unwrap_or(Bytes::MAX)))
        };
        let mut tiers = Vec::new();
        for tier in plan::Tier::ALL {
            let lines = || plan.lines().iter().filter(move |line| line.tier == tier);
            let planned = sum(&mut lines().map(|line| line.granted));
            let (committed, used, peak) = match tier {
                plan::Tier::Pooled => {
                    let (committed, held) = (of_pools(|pool| pool.committed), of_pools(|pool| pool.held));
                    (committed, held, held)
                }
                plan::Tier::ForwardScratch => {
                    let peak = sum(&mut scratch.iter().map(|stack| ScratchStack::high_water(stack)));
                    (sum(&mut scratch.iter().map(|stack| stack.capacity())), Bytes::ZERO, peak)
                }
                // Not ours: charged so that others find room for it.
                plan::Tier::Reserve | plan::Tier::HostStaging => (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO),
                _ => {
                    let unclaimed = sum(&mut lines()
                        .filter(|line| unclaimed.iter().any(|name| **name == *line.name))
                        .map(|line| line.granted));
                    let carved = planned.beyond(unclaimed);
                    (planned, carved, carved)
                }
            };
            // Pools and scratch that survived a model have no line in this plan, and are there all the same.
            if !planned.is_zero() || !committed.is_zero() {
                tiers.push(TierReport { tier, planned, committed, used, peak });
            }
        }
        let attributed = sum(&mut tiers.iter().map(|tier| tier.committed));
        MemoryReport { device, unattributed: device.live.beyond(attributed), tiers, pools, graphs, unclaimed }
    }
}

impl MemoryReport {
    /// Device acquisitions while serving that no plan paid for. Zero, or the engine is wrong.
    pub fn unplanned_acquisitions(&self) -> u64 {
        self.device.acquisitions[2].saturating_sub(self.device.planned_commits + self.device.pinned_acquisitions)
    }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: Bytes| bytes.count() as f64 / f64::from(1 << 20);
        writeln!(f, "  {:<20} {:>12} {:>12} {:>12} {:>12}", "tier (MiB)", "planned", "committed", "in use", "peak")?;
        for TierReport { tier, planned, committed, used, peak } in &self.tiers {
            let [planned, committed, used, peak] = [planned, committed, used, peak].map(|bytes| mib(*bytes));
            writeln!(f, "  {:<20} {planned:>12.2} {committed:>12.2} {used:>12.2} {peak:>12.2}", tier.name())?;
        }
        for PoolReport { name, committed, held, block } in &self.pools {
            writeln!(f, "  pool {name}: {held} held of {committed}, {block} each")?;
        }
        writeln!(f, "  unattributed: {:.2} MiB", mib(self.unattributed))?;
        let DeviceReport { budget, live, peak, .. } = self.device;
        writeln!(f, "  device: {:.2} MiB live, {:.2} peak, {:.2} budget", mib(live), mib(peak), mib(budget))?;
        write!(f, "  graphs: {} of {} planned", self.graphs.0, self.graphs.1)?;
        if !self.unclaimed.is_empty() {
            write!(f, "\n  planned and never carved: {}", self.unclaimed.join(", "))?;
        }
        Ok(())
    }
}
