//! Prompts that start like earlier ones start with their blocks.
//!
//! Whole blocks of the pool for the full context are cached as they fill, with proof that they are in memory. Layers with a sliding window keep the
//! latest tokens only, in blocks that are nobody else's; a copy of them is kept at the end of each prompt, and a prompt is
//! found up to where there is one.

use std::sync::Arc;

use memtier::{
    Blocks, Content, Engine, Fence, GlobalKv, PrefixCache, PrefixCacheSpec, PrefixCacheStats, Root, RootKey, Serving,
    Settled, SnapshotStats, Step, Stream, SwaKv, Ticket, TieredCache, Tokens, f16, plan::KvDtype,
};

use super::{
    Llm, Row,
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
    sequence::Sequence,
};

pub(super) type Kv = GlobalKv<f16>;
pub(super) type KvTicket = Ticket<Kv>;
pub(super) type WindowTicket = Ticket<SwaKv<f16>>;

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
                let key = RootKey::new(file.digest()).with("engine", env!("CARGO_PKG_VERSION"));
                // Rotated rows are other bytes of the same types and sizes.
                let rotates = settings.kv_rotation && settings.kv_types.any(KvDtype::Q4_0);
                let key = if rotates { key.with("kv-rotation", "hadamard") } else { key };
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

    /// A request that starts with what the pool has cached of its prompt, and what its window must be filled with.
    fn start(&mut self, prompt: &[u32], room: Tokens) -> Result<(KvTicket, Option<Found>), EngineError> {
        // The last token's logits are wanted, so it is processed in any case.
        let content = Content::new(self.root, &prompt[..prompt.len() - 1]);
        let mut lease = self.cache.lookup(&content)?;
        let mut state = None;
        if let Some(states) = &mut self.states {
            state = states.find(self.tiers.as_ref(), &lease, &content)?;
            lease.shorten(state.as_ref().map_or(Blocks::ZERO, Found::blocks));
        }
        self.reused += lease.tokens().count();
        Ok((lease.open(room), state))
    }

    /// Publishes the blocks that a request has filled.
    fn publish(&self, sequence: &mut Sequence, settled: &Settled) -> Result<(), EngineError> {
        if sequence.low.is_some() {
            // Its blocks are of another pool.
            return Ok(());
        }
        // What did not see all before it is not what its name says.
        let whole = self.whole.min(sequence.tokens.len());
        let content = Content::new(self.root, &sequence.tokens[..whole]);
        self.cache.publish(&mut sequence.kv, settled, &content)?;
        Ok(())
    }
}

impl<S: Compute> Llm<S> {
    /// The blocks of a new request, with room for `room` tokens; those of its prompt that are cached are there already.
    pub(super) fn open_blocks(
        &mut self,
        prompt: &[u32],
        room: Tokens,
        reuse: bool,
    ) -> Result<(KvTicket, Option<WindowTicket>), EngineError> {
        let (mut kv, state) = match self.prefixes.as_mut().filter(|_| reuse) {
            Some(prefixes) => prefixes.start(prompt, room)?,
            None => (self.engine.bundle().kv.open(room), None),
        };
        self.extend_to(&mut kv, room)?;
        let mut window = self.engine.bundle().window.as_ref().map(|pool| pool.open(room));
        if reuse {
            self.restore(&mut kv, window.as_mut(), prompt, state.as_ref())?;
        }
        Ok((kv, window))
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
            if let (Some(prefixes), Some(sequence)) = (&self.prefixes, &mut self.sequences[share.row]) {
                prefixes.publish(sequence, settled)?;
                if share.complete
                    && let Some(copy) = sequence.snapshot.take()
                {
                    self.keep_window(share.row, copy)?;
                }
            }
        }
        Ok(())
    }

    /// Keeps a copy of a request's window at the end of what it has published, in `copy`.
    fn keep_window(&mut self, row: Row, mut copy: Arc<WindowTicket>) -> Result<(), EngineError> {
        let Llm { prefixes, sequences, arch, .. } = &*self;
        let Some(Prefixes { states: Some(states), .. }) = prefixes else { return Ok(()) };
        let Some(sequence) = sequences.get(row).and_then(Option::as_ref) else { return Ok(()) };
        let Some(window) = &sequence.window else { return Ok(()) };
        let tokens = sequence.kv.cached().count() as usize;
        let blocks = blocks_of(arch, tokens);
        // Not where the window has gone on, or the same is kept already.
        if tokens == 0 || states.near().has(&sequence.kv) || !blocks.clone().all(|index| window.has(index)) {
            return Ok(());
        }
        if states.would_lose() {
            self.spill_states()?;
        }
        let Llm { prefixes, sequences, engine, stream, arch, .. } = self;
        let Some(Prefixes { states: Some(states), .. }) = prefixes else { return Ok(()) };
        let Some(sequence) = sequences.get(row).and_then(Option::as_ref) else { return Ok(()) };
        let (Some(window), Some(to)) = (&sequence.window, Arc::get_mut(&mut copy)) else { return Ok(()) };
        let near = states.near_mut();
        // The plan has blocks for so many copies, and no more.
        while near.len() >= near.most() && near.evict_one() {}
        match copy_window(engine, stream, arch.window, (window, to), tokens) {
            Ok(Some(settled)) => {
                near.keep(&sequence.kv, copy, &settled);
            }
            // Requests need them more.
            Ok(None) | Err(EngineError::Capacity(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// An empty request to copy a window into.
    pub(super) fn open_snapshot(&self, room: Tokens) -> Option<Arc<WindowTicket>> {
        self.prefixes.as_ref().filter(|_| self.arch.window_snapshots > 0)?;
        self.engine.bundle().window.as_ref().map(|pool| Arc::new(pool.open(room)))
    }

    /// Keeps a copy of the window of a request that ends: who asks on starts with it.
    pub(super) fn keep_ended(&mut self, row: Row) -> Result<(), EngineError> {
        let most = self.sequences.get(row).and_then(Option::as_ref).map_or(0, |sequence| sequence.most);
        match self.open_snapshot(Tokens::new(most as u64)) {
            Some(copy) => self.keep_window(row, copy),
            None => Ok(()),
        }
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
