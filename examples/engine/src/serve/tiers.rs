//! A second tier for cached blocks: what the pool for the full context is about to give up is kept there, and comes back.

use memtier::{
    Blocks, Engine, Fence, PrefixCache, PrefixCacheSpec, Serving, Settled, Step, Stream, TierSpec, TierStats,
    TieredCache, Tokens,
};

use super::{
    Llm,
    prefixes::{Kv, Prefixes},
    states::States,
};
use crate::{
    EngineError,
    compute::Compute,
    config::Settings,
    model::{Model, ModelView},
};

/// Paths on their way to the second tier at a time.
const PATHS: usize = 8;

/// The second tier, if the bundle has a pool for it.
pub(super) fn open<S: Compute>(
    hot: &PrefixCache<Kv>,
    settings: &Settings,
    bundle: &Model<S>,
) -> Result<Option<TieredCache<Kv>>, EngineError> {
    let Some(pool) = &bundle.cold else { return Ok(None) };
    let cold = PrefixCache::new(&pool.handle(), PrefixCacheSpec::new(pool.most()))?;
    let longest = Tokens::new(settings.max_seq_len as u64);
    Ok(Some(TieredCache::new(hot.clone(), cold, TierSpec { paths: PATHS, longest })?))
}

impl<S: Compute> Llm<S> {
    /// Copies what the next `needed` blocks would be taken from to the second tier, as far as it is not there: for a request that waits.
    pub(super) fn spill(&mut self, needed: Blocks) -> Result<(), EngineError> {
        self.spilled()?;
        let Llm { prefixes: Some(prefixes), engine, stream, settings, .. } = self else { return Ok(()) };
        // Copies begin at the beginning of a path, and eviction at its end: the longest path must be whole.
        let mut left = Blocks::new(needed.count() + longest(settings).count());
        while !left.is_zero()
            && let Some((sent, fence)) = send(prefixes, engine, stream, left)?
        {
            arrive(prefixes, &fence.wait()?)?;
            if sent.is_zero() {
                break;
            }
            left = left.beyond(sent);
        }
        Ok(())
    }

    /// Copies windows to the second tier until the next one that is kept ends none that could be there.
    pub(super) fn spill_states(&mut self) -> Result<(), EngineError> {
        self.spilled()?;
        let Llm { prefixes: Some(prefixes), engine, stream, .. } = self else { return Ok(()) };
        while prefixes.states.as_ref().is_some_and(States::would_lose)
            && let Some((sent, fence)) = send(prefixes, engine, stream, Blocks::new(1))?
        {
            arrive(prefixes, &fence.wait()?)?;
            if sent.is_zero() {
                break;
            }
        }
        Ok(())
    }

    /// After a pass: copies a few blocks while free ones are scarce, so that the next request need not wait for it. Nobody waits for
    /// these either; [`spilled`](Self::spilled) does when the next pass begins.
    pub(super) fn spill_ahead(&mut self) -> Result<(), EngineError> {
        let pool = &self.engine.bundle().kv;
        // What the plan has paid for is as good as free.
        let there = pool.free().count() + pool.most().beyond(pool.committed()).count();
        let is_scarce = there < longest(&self.settings).count();
        let Llm { prefixes: Some(prefixes), engine, stream, settings, .. } = self else { return Ok(()) };
        let would_lose = prefixes.states.as_ref().is_some_and(States::would_lose);
        if settings.spill_ahead == 0 || prefixes.ahead.is_some() || !(is_scarce || would_lose) {
            return Ok(());
        }
        if let Some((sent, fence)) = send(prefixes, engine, stream, Blocks::new(settings.spill_ahead as u64))? {
            prefixes.ahead = (!sent.is_zero()).then_some(fence);
        }
        Ok(())
    }

    /// What was sent ahead has arrived.
    pub(super) fn spilled(&mut self) -> Result<(), EngineError> {
        if let Some(prefixes) = &mut self.prefixes
            && let Some(fence) = prefixes.ahead.take()
        {
            arrive(prefixes, &fence.wait()?)?;
        }
        Ok(())
    }

    /// What both tiers of the prefix cache hold and did; `None` where there is one.
    pub fn tier_stats(&self) -> Option<TierStats> {
        Some(self.prefixes.as_ref()?.tiers.as_ref()?.stats())
    }
}

/// Blocks of the longest sequence.
fn longest(settings: &Settings) -> Blocks {
    Blocks::new(settings.max_seq_len.div_ceil(settings.block_tokens) as u64)
}

/// Launches copies of up to `most` blocks in a step. How much that is, and the fence; `None` without a second tier.
fn send<S: Compute>(
    prefixes: &mut Prefixes,
    engine: &mut Engine<Serving<Model<S>>>,
    stream: &mut Stream<S>,
    most: Blocks,
) -> Result<Option<(Blocks, Fence)>, EngineError> {
    let Prefixes { tiers: Some(tiers), states, .. } = prefixes else { return Ok(None) };
    let mut step = engine.step(stream)?;
    let Step { buffers, on, .. } = &mut step;
    let ModelView { kv, cold: Some(cold), window, cold_window, .. } = buffers else { return Ok(None) };
    let mut sent = Blocks::ZERO;
    match (&mut *states, window, cold_window) {
        (None, ..) => sent = tiers.spill(on, kv, cold, most)?,
        // A prefix without a copy of the window is of no use: they go together, one at a time.
        (Some(States::Tiered(states)), Some(window), Some(cold_window)) => {
            let (count, blocks) = states.spill(on, tiers, (kv, cold), (window, cold_window), 1)?;
            sent = Blocks::new(blocks.count() + count as u64);
        }
        _ => {}
    }
    let fence = step.finish()?;
    tiers.sent(&fence)?;
    if let Some(States::Tiered(states)) = states {
        states.sent(&fence)?;
    }
    Ok(Some((sent, fence)))
}

/// Publishes what is in the second tier by this proof.
fn arrive(prefixes: &mut Prefixes, settled: &Settled) -> Result<(), EngineError> {
    let Prefixes { tiers: Some(tiers), states, .. } = prefixes else { return Ok(()) };
    tiers.settle(settled)?;
    match states {
        Some(states) => states.settle(tiers, settled),
        None => Ok(()),
    }
}
