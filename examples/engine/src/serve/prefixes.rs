//! Prompts that start like earlier ones start with their blocks.
//!
//! Whole blocks of the pool for the full context are cached as they fill, with proof that they are in memory. Layers with a sliding window keep the
//! latest tokens only, in blocks that are nobody else's; a copy of them is kept at the end of each prompt, and a prompt is
//! found up to where there is one.

use std::sync::Arc;

use memtier::{
    Blocks, Content, Engine, Fence, GlobalKv, PrefixCache, PrefixCacheSpec, PrefixCacheStats, PrefixLease, Root,
    RootKey, Serving, Settled, SnapshotStats, Step, Stream, SwaKv, Ticket, TieredCache, Tokens, f16, plan::KvDtype,
};

use super::{
    Cached, Llm, Row,
    pair::{Prefix, find_both},
    states::{Found, States, copy_blocks},
    tiers,
};
use crate::{
    EngineError, ModelFile,
    arch::Arch,
    compute::Compute,
    config::Settings,
    model::{Model, ModelView},
    policy::CachedBlocks,
};

pub(super) type Kv = GlobalKv<f16>;
pub(super) type KvTicket = Ticket<Kv>;
pub(super) type WindowTicket = Ticket<SwaKv<f16>>;
/// What a window is copied into, if any is wanted.
type Copy = Option<Arc<WindowTicket>>;

/// The blocks of a request.
pub(super) struct Opened {
    pub(super) kv: KvTicket,
    pub(super) window: Option<WindowTicket>,
    pub(super) front: Option<Cached>,
}

/// The cache of one model.
pub(super) struct Prefixes {
    pub(super) cache: PrefixCache<Kv>,
    /// The same cache before a second one, where there is a pool for that.
    pub(super) tiers: Option<TieredCache<Kv>>,
    pub(super) root: Root,
    /// Copies of windows, for models that have one.
    pub(super) states: Option<States>,
    /// Tokens at the beginning of a sequence that see all before them.
    whole: usize,
    pub(super) reused: u64,
    /// Behind what was sent to the second tier before anybody needed the room.
    pub(super) ahead: Option<Fence>,
}

impl Prefixes {
    /// The cache, if the settings want one.
    pub(super) fn open<S: Compute>(
        file: &ModelFile,
        arch: &Arch,
        settings: &Settings,
        bundle: &Model<S>,
    ) -> Result<Option<Self>, EngineError> {
        if !settings.prefix_cache {
            return Ok(None);
        }
        let cache = PrefixCache::new(&bundle.kv.handle(), PrefixCacheSpec::new(bundle.kv.most()))?;
        let tiers = tiers::open(&cache, settings, bundle)?;
        let key = match &settings.prefix_store {
            // Of what is saved and found again, the file's name says nothing.
            Some(_) => {
                // How keys and values lie in a block is the device's.
                let key = RootKey::new(file.digest()).with("engine", env!("CARGO_PKG_VERSION")).with("space", S::NAME);
                // Rotated rows are other bytes of the same types and sizes.
                let rotates = settings.kv_rotation && settings.kv_types.any(KvDtype::Q4_0);
                let key = if rotates { key.with("kv-rotation", "hadamard") } else { key };
                // A run of layers may have blocks of the same size as another one.
                let key = match settings.gpu_layers {
                    Some(_) => key.with("layers", format!("{} and {} more", arch.first, arch.layers.len())),
                    None => key,
                };
                key.with("kv", settings.kv_types.to_string())
            }
            // One file is served from here, so its name is enough.
            None => RootKey::new(file.path().as_os_str().as_encoded_bytes()),
        };
        let root = match &tiers {
            Some(tiers) => tiers.root(&key)?,
            None => cache.root(&key)?,
        };
        let whole = arch.streaming.map_or(usize::MAX, |streaming| streaming.whole());
        let states = States::open(&cache, tiers.as_ref(), (arch, settings), bundle)?;
        Ok(Some(Prefixes { cache, tiers, root, states, whole, reused: 0, ahead: None }))
    }

    /// For the memory policy, which may have the cache give blocks up.
    pub(super) fn cached_blocks(&self) -> impl CachedBlocks + use<> {
        self.cache.clone()
    }

    /// What the pool has cached of a prompt, and what a window must be filled with behind it.
    pub(super) fn find(&mut self, prompt: &[u32]) -> Result<Prefix, EngineError> {
        let content = self.content(prompt);
        let mut lease = self.cache.lookup(&content)?;
        let state = self.state_for(&mut lease, &content)?;
        Ok((lease, state))
    }

    /// No more than the first `blocks` of it.
    pub(super) fn shorten(&mut self, prefix: &mut Prefix, blocks: Blocks, prompt: &[u32]) -> Result<(), EngineError> {
        prefix.0.shorten(blocks);
        prefix.1 = self.state_for(&mut prefix.0, &self.content(prompt))?;
        Ok(())
    }

    /// The last token's logits are wanted, so it is processed in any case.
    fn content<'p>(&self, prompt: &'p [u32]) -> Content<'p> {
        Content::new(self.root, &prompt[..prompt.len() - 1])
    }

    /// The copy of a window for what is found, which ends there then.
    fn state_for(&mut self, lease: &mut PrefixLease<Kv>, content: &Content<'_>) -> Result<Option<Found>, EngineError> {
        let Some(states) = &mut self.states else { return Ok(None) };
        let state = states.find(self.tiers.as_ref(), lease, content)?;
        lease.shorten(state.as_ref().map_or(Blocks::ZERO, Found::blocks));
        Ok(state)
    }

    /// Publishes the blocks that a request has filled.
    pub(super) fn publish(&self, kv: &mut KvTicket, tokens: &[u32], settled: &Settled) -> Result<(), EngineError> {
        // What did not see all before it is not what its name says.
        let content = Content::new(self.root, &tokens[..self.whole.min(tokens.len())]);
        self.cache.publish(kv, settled, &content)?;
        Ok(())
    }

    /// Whether a request's window is worth a copy at the end of what it has published: after so many tokens. Not where the window has
    /// gone on, or the same is kept already.
    pub(super) fn wants(&self, kv: &KvTicket, window: Option<&WindowTicket>, arch: &Arch) -> Option<usize> {
        let (states, window) = (self.states.as_ref()?, window?);
        let tokens = kv.cached().count() as usize;
        let is_there = tokens == 0 || states.near().has(kv);
        (!is_there && blocks_of(arch, tokens).all(|index| window.has(index))).then_some(tokens)
    }
}

impl<S: Compute> Llm<S> {
    /// The blocks of a new request in all parts, with room for `room` tokens; those of its prompt that are cached are there already.
    pub(super) fn open_blocks(&mut self, prompt: &[u32], room: Tokens, reuse: bool) -> Result<Opened, EngineError> {
        let opened = self.open_parts(prompt, room, reuse);
        self.caches_in_step();
        opened
    }

    fn open_parts(&mut self, prompt: &[u32], room: Tokens, reuse: bool) -> Result<Opened, EngineError> {
        let Llm { prefixes, front, .. } = self;
        let (main, beside) = (prefixes.as_mut(), front.as_mut().and_then(|front| front.prefixes.as_mut()));
        let (here, there) = match (main.filter(|_| reuse), beside) {
            (Some(main), Some(beside)) => {
                let [here, there] = find_both([main, beside], prompt)?;
                (Some(here), Some(there))
            }
            (Some(main), None) => (Some(main.find(prompt)?), None),
            (None, _) => (None, None),
        };
        let (mut kv, state) = match here {
            Some((lease, state)) => {
                if let Some(prefixes) = &mut self.prefixes {
                    prefixes.reused += lease.tokens().count();
                }
                (lease.open(room), state)
            }
            None => (self.engine.bundle().kv.open(room), None),
        };
        self.extend_to(&mut kv, room)?;
        let mut window = self.engine.bundle().window.as_ref().map(|pool| pool.open(room));
        if reuse {
            self.restore(&mut kv, window.as_mut(), prompt, state.as_ref())?;
        }
        let front = self.front.as_mut().map(|front| front.open(room, there)).transpose()?;
        Ok(Opened { kv, window, front })
    }

    /// Continues a request with what the second tier has of its prompt, and fills its window with `state`. It has its blocks
    /// already.
    fn restore(
        &mut self,
        kv: &mut KvTicket,
        window: Option<&mut WindowTicket>,
        prompt: &[u32],
        state: Option<&Found>,
    ) -> Result<(), EngineError> {
        let Llm { prefixes: Some(prefixes), engine, stream, settings, .. } = self else { return Ok(()) };
        let Prefixes { tiers, root, states, reused, .. } = prefixes;
        // Where there is a window, as far as there is a copy of it; else as far as there are blocks.
        let end = match (&states, state) {
            (None, _) => prompt.len() - 1,
            (Some(_), state) => state.map_or(0, |state| state.blocks().count() as usize * settings.block_tokens),
        };
        if end == 0 || (tiers.is_none() && state.is_none()) {
            return Ok(());
        }
        let mut step = engine.step(stream)?;
        let Step { buffers: ModelView { kv: first, cold, window: windows, cold_window, .. }, on, .. } = &mut step;
        let restored = match (tiers, cold) {
            (Some(tiers), Some(cold)) => tiers.restore(on, first, cold, kv, &Content::new(*root, &prompt[..end]))?,
            _ => Tokens::ZERO,
        };
        match (state, window, windows) {
            (Some(state), Some(window), Some(windows)) => {
                let held = state.copy(on, (windows, cold_window.as_mut()), window)?;
                let fence = step.finish()?;
                window.advance(held, &fence)?;
                kv.advance(restored, &fence)?;
            }
            _ => kv.advance(restored, &step.finish()?)?,
        }
        *reused += restored.count();
        Ok(())
    }

    /// Gives a request all the blocks that `room` tokens need, and no more than a sequence may hold: free ones, the plan's next ones,
    /// then cached ones.
    pub(super) fn extend_to(&mut self, kv: &mut KvTicket, room: Tokens) -> Result<(), EngineError> {
        let per_block = Tokens::new(self.settings.block_tokens as u64);
        // Where blocks were released, that many more may be behind them.
        let most = Tokens::new(self.settings.max_seq_len as u64).in_blocks_of(per_block).count();
        let holes = (kv.capacity().in_blocks_of(per_block).count()).saturating_sub(kv.blocks().count());
        let room = room.min(Tokens::new((most + holes) * per_block.count()));
        let pool = &self.engine.bundle().kv;
        let held = kv.capacity().in_blocks_of(per_block);
        let needed = room.in_blocks_of(per_block).beyond(held);
        // What the plan has paid for comes before what might be wanted again.
        while pool.free() < needed
            && let Some(commit) = pool.planned_commit()
        {
            pool.grow(commit).map_err(|error| EngineError::Busy(error.to_string()))?;
        }
        if pool.free() < needed {
            self.spill(needed)?;
        }
        let more = Tokens::new(room.count().saturating_sub(kv.tokens().count()));
        while let Err(full) = kv.extend(more) {
            if !self.governor.make_room(needed) {
                return Err(full.into());
            }
        }
        Ok(())
    }

    /// Publishes what the last pass filled, and keeps copies of the windows of prompts that it completed.
    pub(super) fn publish(&mut self, settled: &Settled) -> Result<(), EngineError> {
        for index in 0..self.batch.shares.len() {
            let share = self.batch.shares[index];
            let Llm { prefixes: Some(prefixes), sequences, front, .. } = self else { return Ok(()) };
            let Some(sequence) = &mut sequences[share.row] else { continue };
            // Blocks of the pool of smaller elements are no other's.
            if sequence.low.is_none() {
                prefixes.publish(&mut sequence.kv, &sequence.tokens, settled)?;
            }
            if let (Some(front), Some(cached)) = (front, &mut sequence.front) {
                front.publish(cached, &sequence.tokens)?;
            }
            if share.complete {
                let copies =
                    (sequence.snapshot.take(), sequence.front.as_mut().and_then(|front| front.snapshot.take()));
                self.keep_window(share.row, copies)?;
            }
        }
        Ok(())
    }

    /// Keeps copies of a request's windows at the end of what it has published.
    fn keep_window(&mut self, row: Row, (here, there): (Copy, Copy)) -> Result<(), EngineError> {
        let Llm { prefixes, sequences, main, .. } = &*self;
        let (Some(prefixes), Some(sequence)) = (prefixes, &sequences[row]) else { return Ok(()) };
        let tokens = prefixes.wants(&sequence.kv, sequence.window.as_ref(), &main.arch);
        if let (Some(tokens), Some(copy)) = (tokens, here) {
            if prefixes.states.as_ref().is_some_and(States::would_lose) {
                self.spill_states()?;
            }
            let Llm { prefixes, sequences, engine, stream, main, .. } = &mut *self;
            if let (Some(Prefixes { states: Some(states), .. }), Some(sequence)) = (prefixes, &sequences[row])
                && let Some(window) = &sequence.window
            {
                keep_copy(states, (engine, stream, main.arch.window), (&sequence.kv, window), copy, tokens)?;
            }
        }
        let Llm { sequences, front: Some(front), .. } = self else { return Ok(()) };
        match (sequences[row].as_ref().and_then(|sequence| sequence.front.as_ref()), there) {
            (Some(cached), Some(copy)) => front.keep_window(cached, copy),
            _ => Ok(()),
        }
    }

    /// An empty request to copy a window into.
    pub(super) fn open_snapshot(&self, room: Tokens) -> Copy {
        self.prefixes.as_ref().filter(|_| self.main.arch.window_snapshots > 0)?;
        self.engine.bundle().window.as_ref().map(|pool| Arc::new(pool.open(room)))
    }

    /// Keeps copies of the windows of a request that ends: who asks on starts with them.
    pub(super) fn keep_ended(&mut self, row: Row) -> Result<(), EngineError> {
        let Some(sequence) = self.sequences.get(row).and_then(Option::as_ref) else { return Ok(()) };
        let room = Tokens::new(sequence.most as u64);
        let there = self.front.as_ref().and_then(|front| front.open_snapshot(room));
        self.keep_window(row, (self.open_snapshot(room), there))
    }

    /// What the prefix cache holds and did.
    pub fn prefix_stats(&self) -> Option<PrefixCacheStats> {
        Some(self.prefixes.as_ref()?.cache.stats())
    }

    /// Copies of sliding windows that are kept for cached prefixes; `None` without any.
    pub fn snapshot_stats(&self) -> Option<SnapshotStats> {
        Some(self.prefixes.as_ref()?.states.as_ref()?.stats())
    }

    /// Tokens of prompts that needed no pass.
    pub fn reused_tokens(&self) -> u64 {
        self.prefixes.as_ref().map_or(0, |prefixes| prefixes.reused)
    }
}

/// Keeps a copy of a window, behind the first `tokens` tokens of what a request has published, in `copy`.
pub(super) fn keep_copy<S: Compute>(
    states: &mut States,
    (engine, stream, window): (&mut Engine<Serving<Model<S>>>, &mut Stream<S>, usize),
    (kv, from): (&KvTicket, &WindowTicket),
    mut copy: Arc<WindowTicket>,
    tokens: usize,
) -> Result<(), EngineError> {
    let Some(to) = Arc::get_mut(&mut copy) else { return Ok(()) };
    let near = states.near_mut();
    // The plan has blocks for so many copies, and no more.
    while near.len() >= near.most() && near.evict_one() {}
    match copy_window(engine, stream, window, (from, to), tokens) {
        Ok(Some(settled)) => {
            near.keep(kv, copy, &settled);
            Ok(())
        }
        // Requests need them more.
        Ok(None) | Err(EngineError::Capacity(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The blocks that tokens from `tokens` on look back into.
fn blocks_of(arch: &Arch, tokens: usize) -> std::ops::Range<usize> {
    (tokens + 1).saturating_sub(arch.window) / arch.block_tokens..tokens.div_ceil(arch.block_tokens)
}

/// Copies what of the first `tokens` tokens a window still holds into the blocks of a request that has none. The proof that it is
/// there; `None` without a window.
pub(super) fn copy_window<S: Compute>(
    engine: &mut Engine<Serving<Model<S>>>,
    stream: &mut Stream<S>,
    window: usize,
    (from, to): (&WindowTicket, &mut WindowTicket),
    tokens: usize,
) -> Result<Option<Settled>, EngineError> {
    let Some(pool) = &engine.bundle().window else { return Ok(None) };
    let per_block = pool.per_block().count() as usize;
    let blocks = (tokens + 1).saturating_sub(window) / per_block..tokens.div_ceil(per_block);
    let mut step = engine.step(stream)?;
    let Step { buffers: ModelView { window: Some(pool), .. }, on, .. } = &mut step else { return Ok(None) };
    let copied = copy_blocks(on, pool, (from, &mut *to), blocks, Tokens::new(tokens as u64))?;
    let fence = step.finish()?;
    to.advance(copied, &fence)?;
    Ok(Some(fence.wait()?))
}
