//! Plan lines: claims to planned memory, made by declaring and used up by carving.

use std::sync::Arc;

use crate::{
    backend::{AcquireError, DeviceCore, PINNED, PhaseCell, Region},
    layout::{PAGE, SizeError},
    part::{Declare, Part},
    plan::{self, BlockGrant, Demand, MemoryPlan, PlanLine},
    units::{Blocks, Bytes, Overflow},
};

/// The claim to one plan line: made by declaring, used up by carving. Neither can be done twice (row q).
#[must_use = "a declared line that is never carved is planned for nothing"]
pub struct Line<T: Declare> {
    pub(crate) plan: u64,
    pub(crate) want: Want<T>,
}

pub(crate) enum Want<T: Declare> {
    /// Carve it from declaration `index`.
    New { index: usize, priced: T::Priced },
    /// Declaration `index` has no size; `plan` says why.
    Unsized { index: usize },
    /// It survived the previous model.
    Kept(T),
}

/// What one call of `declare` asked for.
pub(crate) struct Declared {
    pub(crate) demands: Result<Vec<Demand>, SizeError>,
}

/// Prices parts while a bundle is declared.
#[doc(hidden)]
pub struct Declarer<'d> {
    pub(crate) plan: u64,
    pub(crate) declared: &'d mut Vec<Declared>,
}

impl Declarer<'_> {
    /// A line for a part of this size.
    pub fn line<T: Declare>(&mut self, spec: T::Spec) -> Line<T> {
        let index = self.declared.len();
        let (declared, want) = price::<T>(&spec, index);
        self.declared.push(declared);
        Line { plan: self.plan, want }
    }
}

pub(crate) fn price<T: Declare>(spec: &T::Spec, index: usize) -> (Declared, Want<T>) {
    let mut demands = Vec::new();
    match T::price(spec, &mut |demand| demands.push(demand)) {
        Ok(priced) => (Declared { demands: Ok(demands) }, Want::New { index, priced }),
        Err(error) => (Declared { demands: Err(error) }, Want::Unsized { index }),
    }
}

/// A line could not be carved. Nothing was: the engine and the lines come back with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CarveError {
    /// The line was declared to another engine, or before the previous model ended, or was carved before.
    #[error(
        "the line of `{name}` was not declared to this plan, or was carved already: declare it to this engine, while it is `Loading`"
    )]
    ForeignLine {
        /// What the line is for.
        name: &'static str,
    },
    /// A stream could not be opened, or the first blocks of a pool could not be committed.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

// ------------------------------------------------------------------------------------------------------ ground

/// The memory that one demand was granted.
pub(crate) struct Lot {
    pub(crate) region: Arc<Region>,
    pub(crate) addr: u64,
    pub(crate) blocks: Option<BlockGrant>,
}

/// The lots of one line, before they are claimed.
#[doc(hidden)]
pub struct Lots<'l>(pub(crate) std::slice::Iter<'l, Lot>);

/// The memory of one claimed line.
#[doc(hidden)]
pub struct Ground {
    lots: std::vec::IntoIter<Lot>,
}

impl Ground {
    #[cfg(test)]
    pub(crate) fn of(lots: Vec<Lot>) -> Self {
        Ground { lots: lots.into_iter() }
    }

    /// The next lot. A claim has one for each demand of its price.
    pub(crate) fn take(&mut self) -> Lot {
        self.lots.next().expect("a claimed line has a lot for each of its demands")
    }
}

/// What an accepted plan granted and nobody carved yet.
pub(crate) struct Grants {
    /// For each declaration its lots, until they are claimed.
    lots: Vec<Option<Vec<Lot>>>,
}

type Devices<'d> = &'d [Arc<DeviceCore>];

impl Grants {
    /// Opens the arenas of an accepted plan at exactly the planned sizes, and the pools' and streams' own regions.
    pub(crate) fn open(
        counts: &[usize],
        plan: &MemoryPlan,
        devices: Devices<'_>,
        phase: &Arc<PhaseCell>,
    ) -> Result<Self, AcquireError> {
        let total: usize = counts.iter().sum();
        let lines = plan.lines().get(..total).unwrap_or_default();
        let mut arenas = Vec::new();
        for tier in [plan::Tier::EnginePersistent, plan::Tier::ModelResident] {
            for device in devices {
                let name = tier.name();
                let bytes = lines.iter().filter(|line| line.tier == tier && line.space == device.space());
                let bytes = Bytes::sum(bytes.map(|line| line.granted)).unwrap_or(Bytes::MAX);
                if !bytes.is_zero() {
                    let region = Region::reserve(device, phase, name, bytes, bytes)?;
                    arenas.push((tier, device.space(), region, Bytes::ZERO));
                }
            }
        }
        let mut lines = lines.iter();
        let lots = counts.iter().map(|count| {
            let lots = lines.by_ref().take(*count).map(|line| open_lot(line, &mut arenas, devices, phase));
            lots.collect::<Result<Vec<_>, _>>().map(Some)
        });
        Ok(Grants { lots: lots.collect::<Result<_, _>>()? })
    }

    /// How many declarations were not carved.
    pub(crate) fn unclaimed(&self) -> impl Iterator<Item = usize> {
        self.lots
            .iter()
            .enumerate()
            .filter(|(_, lots)| lots.as_ref().is_some_and(|lots| !lots.is_empty()))
            .map(|(n, _)| n)
    }

    fn claim(&mut self, index: usize) -> Option<Ground> {
        self.lots.get_mut(index)?.take().map(|lots| Ground { lots: lots.into_iter() })
    }
}

type Arena = (plan::Tier, &'static str, Arc<Region>, Bytes);

fn open_lot(
    line: &PlanLine,
    arenas: &mut [Arena],
    devices: Devices<'_>,
    phase: &Arc<PhaseCell>,
) -> Result<Lot, AcquireError> {
    let bytes = line.granted;
    let arena = arenas.iter_mut().find(|(tier, space, ..)| *tier == line.tier && *space == line.space);
    if let Some((_, _, region, used)) = arena {
        let addr = region.base() + used.count();
        *used = used.plus(bytes).unwrap_or(Bytes::MAX);
        return Ok(Lot { region: region.clone(), addr, blocks: line.blocks });
    }
    let name = match line.tier {
        plan::Tier::ForwardScratch => "forward scratch",
        plan::Tier::HostPinned => PINNED,
        _ => "pool",
    };
    let missing = AcquireError::System { name, operation: "opening", bytes, reason: "no such device".into() };
    let device = devices.iter().find(|device| device.space() == line.space).ok_or(missing)?;
    // A pool commits its first blocks when it is carved: it knows how many.
    let committed = if line.blocks.is_some() { Bytes::ZERO } else { bytes };
    let region = Region::reserve(device, phase, name, bytes, committed)?;
    Ok(Lot { addr: region.base(), region, blocks: line.blocks })
}

/// Looks at lines without using them up.
#[doc(hidden)]
pub struct Check<'c> {
    pub(crate) plan: u64,
    pub(crate) grants: &'c Grants,
    pub(crate) seen: Vec<usize>,
}

impl Check<'_> {
    /// Whether `line` can be carved by this plan, with all its memory there.
    pub fn line<T: Declare>(&mut self, line: &Line<T>) -> Result<(), CarveError> {
        let ours = line.plan == self.plan
            && match &line.want {
                Want::Kept(_) => true,
                Want::Unsized { .. } => false,
                Want::New { index, .. } => {
                    let fresh = !self.seen.contains(index);
                    self.seen.push(*index);
                    fresh && self.grants.lots.get(*index).is_some_and(Option::is_some)
                }
            };
        if !ours {
            return Err(CarveError::ForeignLine { name: T::LABEL });
        }
        if let Want::New { index, priced } = &line.want
            && let Some(Some(lots)) = self.grants.lots.get(*index)
        {
            T::first_commit(priced, &mut Lots(lots.iter()))?;
        }
        Ok(())
    }
}

/// Carves lines that were checked, each once.
#[doc(hidden)]
pub struct Carver<'c> {
    pub(crate) grants: &'c mut Grants,
}

impl Carver<'_> {
    /// The part that `line` pays for.
    pub fn part<T: Part>(&mut self, line: Line<T>) -> T {
        match line.want {
            Want::Kept(part) => part,
            Want::New { index, priced } => T::carve(priced, &mut self.claim(index)),
            Want::Unsized { .. } => unreachable!("`Check` refuses lines without a size"),
        }
    }

    pub(crate) fn claim(&mut self, index: usize) -> Ground {
        self.grants.claim(index).expect("`Check` refuses lines that were carved")
    }
}

/// The bytes of a pool, or of anything else that starts on a page.
pub(crate) fn paged(bytes: Bytes) -> Result<Bytes, Overflow> {
    bytes.aligned(PAGE)
}

/// The lots a pool may use at most, from what the plan granted.
pub(crate) fn granted_blocks(lot: &Lot) -> Blocks {
    lot.blocks.as_ref().map_or(Blocks::ZERO, |grant| grant.granted)
}
