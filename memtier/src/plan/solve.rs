//! The grants, in their order.
//!
//! 1. context, library reserve, graphs, what others hold ([`Tier::Reserve`])
//! 2. [`Tier::EnginePersistent`]
//! 3. [`Tier::ModelResident`], mandatory weight caches among it
//! 4. [`Tier::ForwardScratch`]
//! 5. [`Tier::Pooled`]: fixed pools whole, elastic pools their floor
//! 6. optional caches, in the order of the demands
//! 7. elastic pools, from their floor to what the configuration can use
//! 8. other demands made of blocks, from their floor to what they can use (an expert cache: it gives way first)
//!
//! Steps 1 to 5 are what the configuration cannot do without; if they fit, it is accepted. A pool is opened at its
//! floor before any cache is built, so no cache can push the KV pool below one advertised sequence. Above that floor
//! caches go first: they speed up every token of every request, and a pool that stays below its full size only admits
//! fewer sequences at once. Whoever wants it the other way round turns the weight caches off.

use super::accepted::{BlockGrant, Charge, MemoryPlan, PlanLine};
use super::failure::{Details, PlanFailure, Refusal};
use super::input::{Amount, Demand, Limits, Name, Need, PlanInput, ReserveSource, Tier};
use super::levers;
use crate::units::{Blocks, Bytes, Overflow};

/// The least a set of demands can run with, by budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Least {
    /// On the device while serving.
    pub(super) serving: Bytes,
    /// On the device while loading.
    pub(super) loading: Bytes,
    /// Transient demands alone.
    pub(super) transient: Bytes,
    /// On the host.
    pub(super) host: Bytes,
}

impl Least {
    /// The device budget that would do.
    pub(super) fn device(&self) -> Bytes {
        self.serving.max(self.loading)
    }

    pub(super) fn fits(&self, limits: &Limits) -> bool {
        self.refusal(limits).is_none()
    }

    fn refusal(&self, limits: &Limits) -> Option<Refusal> {
        if self.device() > limits.budget {
            return Some(if self.loading > self.serving { Refusal::Load } else { Refusal::Device });
        }
        limits.host_budget.is_some_and(|budget| self.host > budget).then_some(Refusal::Host)
    }
}

/// The reserve lines that the limits imply, in order.
fn reserve_lines(limits: &Limits) -> Result<[(Name, Bytes); 4], Name> {
    const GRAPHS: Name = Name::fixed("graphs");
    let graphs = match limits.graphs {
        0 => Ok(Bytes::ZERO),
        count => limits.graph_bytes.times(count.into()).and_then(|all| all.plus(limits.graph_shared)),
    };
    Ok([
        (Name::fixed("context + driver"), limits.context),
        (library(limits.library_source), limits.library_reserve),
        (GRAPHS, graphs.map_err(|Overflow| GRAPHS)?),
        (Name::fixed("held by others"), limits.held),
    ])
}

/// The reserve is the one line that may be a guess, so its name says whether it is.
const fn library(source: ReserveSource) -> Name {
    Name::fixed(match source {
        ReserveSource::Assumed => "library reserve (assumed)",
        ReserveSource::Remembered => "library reserve (remembered)",
        ReserveSource::Measured => "library reserve (measured)",
    })
}

fn charge_of(demand: &Demand, limits: &Limits) -> Charge {
    if demand.tier.is_host() || demand.space != limits.space {
        Charge::Host
    } else if demand.need == Need::Transient {
        Charge::LoadOnly
    } else {
        Charge::Device
    }
}

/// What the demands cannot do without.
///
/// # Errors
/// The name of the line whose size, or the sum up to it, leaves the range.
pub(super) fn least(limits: &Limits, demands: &[Demand]) -> Result<Least, Name> {
    let mut least = Least { serving: Bytes::ZERO, loading: Bytes::ZERO, transient: Bytes::ZERO, host: Bytes::ZERO };
    for (name, bytes) in reserve_lines(limits)? {
        least.serving = least.serving.plus(bytes).map_err(|Overflow| name)?;
    }
    least.loading = least.serving;
    for demand in demands {
        least.add(demand, charge_of(demand, limits)).map_err(|Overflow| demand.name.clone())?;
    }
    Ok(least)
}

impl Least {
    fn add(&mut self, demand: &Demand, charge: Charge) -> Result<(), Overflow> {
        if demand.need == Need::OptionalCache {
            return Ok(());
        }
        let bytes = demand.amount.least()?;
        match charge {
            Charge::Host => self.host = self.host.plus(bytes)?,
            Charge::LoadOnly => {
                self.transient = self.transient.plus(bytes)?;
                self.loading = self.loading.plus(bytes)?;
            }
            Charge::Device => {
                self.serving = self.serving.plus(bytes)?;
                // Pools are opened when the load is over; until then their memory is the transients'.
                if demand.tier != Tier::Pooled {
                    self.loading = self.loading.plus(bytes)?;
                }
            }
        }
        Ok(())
    }
}

/// Decides and hands out.
///
/// # Errors
/// The refusal with its levers.
pub(super) fn solve(input: &PlanInput<'_>) -> Result<MemoryPlan, PlanFailure> {
    let (limits, demands) = (&input.limits, input.demands);
    let least = match least(limits, demands) {
        Ok(least) => least,
        Err(name) => return Err(refuse(input, Refusal::Overflow(name), None, Vec::new())),
    };
    let mut hand = Hand::new(limits, demands);
    hand.deal_mandatory();
    if let Some(refusal) = least.refusal(limits) {
        return Err(refuse(input, refusal, Some(least), hand.lines));
    }
    hand.deal_the_rest();
    let lines = hand.lines;
    // Each sum is part of what a budget had, so it cannot leave the range.
    let total = lines.iter().map(|line| line.charged().count()).sum();
    let host = lines.iter().filter(|line| line.charge == Charge::Host).map(|line| line.granted.count()).sum();
    Ok(MemoryPlan {
        limits: *limits,
        config: input.config,
        lines,
        total: Bytes::new(total),
        transient: least.transient,
        load_peak: least.loading,
        host: Bytes::new(host),
    })
}

#[cold]
fn refuse(input: &PlanInput<'_>, refusal: Refusal, least: Option<Least>, lines: Vec<PlanLine>) -> PlanFailure {
    let host = refusal == Refusal::Host;
    let budget = if host { input.limits.host_budget.unwrap_or(Bytes::MAX) } else { input.limits.budget };
    let requested = least.map_or(Bytes::MAX, |least| if host { least.host } else { least.device() });
    let levers = least.map(|least| levers::find(input, least, host)).unwrap_or_default();
    PlanFailure(Box::new(Details {
        refusal,
        limits: input.limits,
        config: input.config,
        locks: input.locks,
        budget,
        requested,
        lines,
        levers,
    }))
}

/// The hand that deals: what is left of each budget, and the lines so far.
struct Hand {
    lines: Vec<PlanLine>,
    device: Bytes,
    host: Bytes,
}

impl Hand {
    /// Lines with nothing granted. `least` has passed, so no size here leaves the range.
    fn new(limits: &Limits, demands: &[Demand]) -> Self {
        let mut lines = Vec::with_capacity(demands.len() + 4);
        lines.extend(demands.iter().map(|demand| PlanLine {
            name: demand.name.clone(),
            tier: demand.tier,
            space: demand.space,
            need: demand.need,
            charge: charge_of(demand, limits),
            asked: demand.amount.least().unwrap_or(Bytes::MAX),
            granted: Bytes::ZERO,
            blocks: match demand.amount {
                Amount::Bytes(_) => None,
                Amount::Blocks { block, tokens, floor, most, step } => Some(BlockGrant {
                    block,
                    tokens,
                    floor,
                    most: most.max(floor),
                    granted: Blocks::ZERO,
                    step: step.max(Blocks::new(1)),
                }),
            },
        }));
        let reserve = reserve_lines(limits).into_iter().flatten().filter(|(_, bytes)| !bytes.is_zero());
        lines.extend(reserve.map(|(name, asked)| PlanLine {
            name,
            tier: Tier::Reserve,
            space: limits.space,
            need: Need::Mandatory,
            charge: Charge::Device,
            asked,
            granted: Bytes::ZERO,
            blocks: None,
        }));
        Self { lines, device: limits.budget, host: limits.host_budget.unwrap_or(Bytes::MAX) }
    }

    fn deal_mandatory(&mut self) {
        for tier in Tier::ALL {
            self.mandatory(tier, |line| !line.is_elastic());
            self.mandatory(tier, PlanLine::is_elastic);
        }
    }

    /// Only after all mandatory lines were met.
    fn deal_the_rest(&mut self) {
        self.optional();
        for charge in [Charge::Device, Charge::Host] {
            self.grow(charge, |line| line.tier == Tier::Pooled);
            self.grow(charge, |line| line.tier != Tier::Pooled);
        }
    }

    /// Meets the mandatory lines of one tier. What cannot be met takes all that is left, so that a refusal shows where
    /// the budget ended.
    fn mandatory(&mut self, tier: Tier, which: impl Fn(&PlanLine) -> bool) {
        for line in self.lines.iter_mut().filter(|line| line.tier == tier && line.need != Need::OptionalCache) {
            if !which(line) {
                continue;
            }
            let left = match line.charge {
                Charge::Device => &mut self.device,
                Charge::Host => &mut self.host,
                // Counted by `least`: a transient takes nothing from those who stay.
                Charge::LoadOnly => {
                    line.set(line.asked);
                    continue;
                }
            };
            if line.asked <= *left {
                line.set(line.asked);
                *left = left.beyond(line.asked);
            } else {
                line.set(*left);
                *left = Bytes::ZERO;
            }
        }
    }

    fn optional(&mut self) {
        for line in self.lines.iter_mut().filter(|line| line.need == Need::OptionalCache) {
            let left = match line.charge {
                Charge::Host => &mut self.host,
                Charge::Device | Charge::LoadOnly => &mut self.device,
            };
            let in_range = line.blocks.is_none_or(|blocks| blocks.block.times(blocks.floor.count()).is_ok());
            if line.asked > *left || !in_range {
                continue;
            }
            line.set(line.asked);
            *left = left.beyond(line.asked);
            line.grow(left);
        }
    }

    /// Grows what is made of blocks towards what the configuration can use: first all in step, by the same share of the
    /// way from floor to most, because a request needs blocks of every pool; then the rest in order.
    fn grow(&mut self, charge: Charge, which: impl Fn(&PlanLine) -> bool) {
        let left = match charge {
            Charge::Host => &mut self.host,
            Charge::Device | Charge::LoadOnly => &mut self.device,
        };
        let mut lines: Vec<&mut PlanLine> = (self.lines.iter_mut())
            .filter(|line| line.charge == charge && line.need == Need::Mandatory && line.is_elastic() && which(line))
            .collect();
        if lines.len() > 1 {
            let share = largest(SHARES, |share| {
                lines.iter().map(|line| line.cost_of_share(share)).sum::<u128>() <= u128::from(left.count())
            });
            for line in &mut lines {
                line.take_share(share, left);
            }
        }
        for line in lines {
            line.grow(left);
        }
    }
}

/// Into how many parts the way from floor to most is divided when several pools grow in step.
const SHARES: u64 = 1 << 16;

/// The largest number up to `most` for which `holds`, which holds for zero and for everything below a number it holds for.
fn largest(most: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut good, mut bad) = (0, most.saturating_add(1));
    while good + 1 < bad {
        let middle = good + (bad - good) / 2;
        if holds(middle) { good = middle } else { bad = middle }
    }
    good
}

impl PlanLine {
    fn is_elastic(&self) -> bool {
        self.blocks.is_some_and(|blocks| blocks.most > blocks.floor)
    }

    /// Grants `bytes`, in whole blocks where there are blocks.
    fn set(&mut self, bytes: Bytes) {
        self.granted = bytes;
        if let Some(blocks) = &mut self.blocks {
            let count = bytes.count().checked_div(blocks.block.count()).unwrap_or(blocks.floor.count());
            blocks.granted = Blocks::new(count).min(blocks.floor);
            self.granted = Bytes::new(blocks.block.count().saturating_mul(blocks.granted.count()));
        }
    }

    /// Takes as many more blocks as fit and can be used.
    fn grow(&mut self, left: &mut Bytes) {
        let Some(blocks) = self.blocks else { return };
        let room = left.count().checked_div(blocks.block.count()).unwrap_or(u64::MAX);
        self.raise_to(blocks.granted.count().saturating_add(room), left);
    }

    /// Raises the grant to `target` blocks, in whole steps, never past what can be used.
    fn raise_to(&mut self, target: u64, left: &mut Bytes) {
        let Some(blocks) = &mut self.blocks else { return };
        let target = blocks.in_steps(target);
        let more = Blocks::new(target).beyond(blocks.granted);
        let bytes = Bytes::new(blocks.block.count().saturating_mul(more.count()));
        blocks.granted = blocks.granted.max(Blocks::new(target));
        self.granted = Bytes::new(self.granted.count().saturating_add(bytes.count()));
        *left = left.beyond(bytes);
    }

    fn share(&self, share: u64) -> Option<(BlockGrant, u64)> {
        let blocks = self.blocks?;
        let way = u128::from(blocks.most.beyond(blocks.floor).count()) * u128::from(share) / u128::from(SHARES);
        let way = u64::try_from(way).unwrap_or(u64::MAX);
        Some((blocks, blocks.in_steps(blocks.floor.count().saturating_add(way))))
    }

    fn cost_of_share(&self, share: u64) -> u128 {
        self.share(share).map_or(0, |(blocks, target)| {
            let more = Blocks::new(target).beyond(blocks.granted).count();
            u128::from(blocks.block.count()) * u128::from(more)
        })
    }

    fn take_share(&mut self, share: u64, left: &mut Bytes) {
        if let Some((_, target)) = self.share(share) {
            self.raise_to(target, left);
        }
    }
}

impl BlockGrant {
    /// `target` blocks cut down to a whole number of steps, within floor and most.
    fn in_steps(&self, target: u64) -> u64 {
        if target >= self.most.count() {
            return self.most.count();
        }
        (target - target % self.step.count().max(1)).max(self.floor.count())
    }
}
