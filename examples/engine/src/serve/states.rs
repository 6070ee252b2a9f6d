//! Copies of sliding windows at the end of cached prefixes: beside the pool, or beside both tiers.

use std::sync::Arc;

use memtier::{
    Blocks, Contents, Eager, FoundState, PoolView, PrefixLease, Recorder, Settled, SnapshotSpec, SnapshotStats,
    Snapshots, SwaKv, TieredCache, TieredSnapshots, Tokens, f16,
};

use super::prefixes::{Kv, WindowTicket};
use crate::{EngineError, arch::Arch, compute::Compute, config::Settings, model::Model};

type Window = SwaKv<f16>;

/// Copies on their way to the second tier at a time.
const MOVING: usize = 2;

/// The copies of one model.
pub(super) enum States {
    Near(Snapshots<Window>),
    Tiered(Box<TieredSnapshots<Window>>),
}

/// A copy that a request starts with.
pub(super) enum Found {
    Near(Blocks, Arc<WindowTicket>),
    Tiered(FoundState<Kv, Window>),
}

impl States {
    /// `None` for a model without a window.
    pub(super) fn open<S: Compute>(
        cache: &memtier::PrefixCache<Kv>,
        tiers: Option<&TieredCache<Kv>>,
        (arch, settings): (&Arch, &Settings),
        bundle: &Model<S>,
    ) -> Result<Option<Self>, EngineError> {
        if arch.window == 0 {
            return Ok(None);
        }
        let (Some(tiers), Some(second)) = (tiers, &bundle.cold_window) else {
            return Ok(Some(States::Near(Snapshots::new(cache, arch.window_snapshots))));
        };
        let longest = Tokens::new(settings.max_seq_len as u64);
        let spec = SnapshotSpec { hot: arch.window_snapshots, cold: arch.cold_snapshots, moving: MOVING, longest };
        let snapshots = TieredSnapshots::new(tiers, &second.handle(), spec)?;
        Ok(Some(States::Tiered(Box::new(snapshots))))
    }

    /// Those beside the pool.
    pub(super) fn near(&self) -> &Snapshots<Window> {
        match self {
            States::Near(near) => near,
            States::Tiered(tiered) => tiered.hot(),
        }
    }

    /// The same, to change.
    pub(super) fn near_mut(&mut self) -> &mut Snapshots<Window> {
        match self {
            States::Near(near) => near,
            States::Tiered(tiered) => tiered.hot_mut(),
        }
    }

    /// Whether the next copy that is kept ends one that the second tier could have.
    pub(super) fn would_lose(&self) -> bool {
        match self {
            States::Near(_) => false,
            States::Tiered(tiered) => tiered.hot().len() >= tiered.hot().most() && tiered.is_behind(),
        }
    }

    /// The longest part of a prompt that there is a copy for: `lease` is what the first tier has of it.
    pub(super) fn find(
        &mut self,
        tiers: Option<&TieredCache<Kv>>,
        lease: &PrefixLease<Kv>,
        content: &impl Contents,
    ) -> Result<Option<Found>, EngineError> {
        match (self, tiers) {
            (States::Tiered(tiered), Some(tiers)) => Ok(tiered.find(tiers, lease, content)?.map(Found::Tiered)),
            (states, _) => Ok(states.near_mut().find(lease).map(|(blocks, state)| Found::Near(blocks, state))),
        }
    }

    /// Keeps what has arrived in the second tier, after its cache has.
    pub(super) fn settle(&mut self, tiers: &TieredCache<Kv>, settled: &Settled) -> Result<(), EngineError> {
        if let States::Tiered(tiered) = self {
            tiered.settle(tiers, settled)?;
        }
        Ok(())
    }

    pub(super) fn stats(&self) -> SnapshotStats {
        match self {
            States::Near(near) => SnapshotStats { hot: near.len(), ..SnapshotStats::default() },
            States::Tiered(tiered) => tiered.stats(),
        }
    }
}

/// The windows' pool, and that of the second tier, in a step.
type Windows<'v, 's, S> = (&'v mut PoolView<'s, Window, Eager<S>>, Option<&'v mut PoolView<'s, Window, Eager<S>>>);

impl Found {
    /// Blocks of the prompt that it is behind.
    pub(super) fn blocks(&self) -> Blocks {
        match self {
            Found::Near(blocks, _) => *blocks,
            Found::Tiered(found) => found.blocks(),
        }
    }

    /// Copies it into a request's window, which has no blocks, in stream order. How many tokens its blocks hold.
    pub(super) fn copy<S: Compute>(
        &self,
        on: &Recorder<Eager<S>>,
        (windows, second): Windows<'_, '_, S>,
        to: &mut WindowTicket,
    ) -> Result<Tokens, EngineError> {
        match (self, second) {
            (Found::Tiered(found), Some(second)) => Ok(found.copy(on, windows, second, to)?),
            (Found::Tiered(_), None) => Ok(Tokens::ZERO),
            (Found::Near(_, state), _) => {
                let blocks = 0..state.capacity().in_blocks_of(windows.per_block()).count() as usize;
                let first = blocks.clone().find(|index| state.has(*index)).unwrap_or(0);
                copy_blocks(on, windows, (state, to), first..blocks.end, state.tokens())
            }
        }
    }
}

/// Copies `blocks` of a window, which hold the tokens up to `tokens`, into a request that has none. How many tokens that are.
pub(super) fn copy_blocks<S: Compute>(
    on: &Recorder<Eager<S>>,
    pool: &mut PoolView<'_, Window, Eager<S>>,
    (from, to): (&WindowTicket, &mut WindowTicket),
    blocks: std::ops::Range<usize>,
    tokens: Tokens,
) -> Result<Tokens, EngineError> {
    to.skip(Blocks::new(blocks.start as u64));
    let copied = Tokens::new(tokens.count().saturating_sub(to.tokens().count()));
    to.extend(copied)?;
    for index in blocks {
        let (from, mut to) = pool.copy_pair((from, index), (&mut *to, index))?;
        on.copy::<f16>(&mut to, from)?;
    }
    Ok(copied)
}
