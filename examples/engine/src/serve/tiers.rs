//! A second tier for cached blocks: what the pool for the full context is about to give up is kept there, and comes back.

use memtier::{
    Blocks, Content, Engine, PrefixCache, PrefixCacheSpec, Serving, Step, Stream, TierSpec, TierStats, TieredCache,
    Tokens,
};

use super::{Llm, prefixes::Kv, prefixes::KvTicket, prefixes::Prefixes};
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
    /// Copies what the next `needed` blocks would be taken from to the second tier.
    pub(super) fn spill(&mut self, needed: Blocks) -> Result<(), EngineError> {
        let Llm { prefixes: Some(Prefixes { tiers: Some(tiers), .. }), engine, stream, settings, .. } = self else {
            return Ok(());
        };
        // Copies begin at the beginning of a path, and eviction at its end: the longest path must be whole.
        let longest = settings.max_seq_len.div_ceil(settings.block_tokens) as u64;
        let mut left = Blocks::new(needed.count() + longest);
        while !left.is_zero() {
            let sent = spill_some(tiers, engine, stream, left)?;
            if sent.is_zero() {
                break;
            }
            left = left.beyond(sent);
        }
        Ok(())
    }

    /// Continues a request with what the second tier has of its prompt. It has the blocks for that already.
    pub(super) fn restore(&mut self, kv: &mut KvTicket, prompt: &[u32]) -> Result<(), EngineError> {
        let Llm { prefixes: Some(prefixes), engine, stream, .. } = self else { return Ok(()) };
        let Prefixes { tiers: Some(tiers), root, reused, .. } = prefixes else { return Ok(()) };
        let content = Content::new(*root, &prompt[..prompt.len() - 1]);
        let mut step = engine.step(stream)?;
        let Step { buffers: ModelView { kv: first, cold: Some(second), .. }, on, .. } = &mut step else {
            return Ok(());
        };
        let tokens = tiers.restore(on, first, second, kv, &content)?;
        kv.advance(tokens, &step.finish()?)?;
        *reused += tokens.count();
        Ok(())
    }

    /// What both tiers of the prefix cache hold and did; `None` where there is one.
    pub fn tier_stats(&self) -> Option<TierStats> {
        Some(self.prefixes.as_ref()?.tiers.as_ref()?.stats())
    }
}

/// One step's copies, and their publication.
fn spill_some<S: Compute>(
    tiers: &mut TieredCache<Kv>,
    engine: &mut Engine<Serving<Model<S>>>,
    stream: &mut Stream<S>,
    most: Blocks,
) -> Result<Blocks, EngineError> {
    let mut step = engine.step(stream)?;
    let Step { buffers: ModelView { kv, cold: Some(cold), .. }, on, .. } = &mut step else { return Ok(Blocks::ZERO) };
    let sent = tiers.spill(on, kv, cold, most)?;
    let fence = step.finish()?;
    tiers.sent(&fence)?;
    tiers.settle(&fence.wait()?)?;
    Ok(sent)
}
