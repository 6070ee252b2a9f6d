//! An engine with a window, whose values are a function of all tokens up to each, so that wrong state shows.

use std::{error::Error, sync::Arc};

use memtier::{
    BlockPool, Blocks, Bytes, Content, Device, Engine, FakeBackend, FoundState, GlobalKv, Host, Limits, PoolSpec,
    PrefixCache, PrefixCacheSpec, Root, RootKey, Serving, Settled, SnapshotSpec, Space, Stream, StreamSpec, SwaKv,
    Ticket, TierError, TierSpec, TieredCache, TieredSnapshots, Tokens, graph_captured,
};

pub(crate) const PER_BLOCK: usize = 4;
/// Tokens that a token looks back on, itself included.
const WINDOW: usize = 6;
const MOST: Tokens = Tokens::new(16 * PER_BLOCK as u64);

pub(crate) type Kv = GlobalKv<u64>;
pub(crate) type Window = SwaKv<u64>;
type Failed = Box<dyn Error>;

#[graph_captured]
pub(crate) struct Memory<S: Space = Host> {
    pub(crate) kv: BlockPool<Kv, S>,
    pub(crate) cold: BlockPool<Kv, S>,
    pub(crate) window: BlockPool<Window, S>,
    pub(crate) cold_window: BlockPool<Window, S>,
}

/// Blocks of each pool, and copies beside each tier.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) kv: u64,
    pub(crate) cold: u64,
    pub(crate) window: u64,
    pub(crate) cold_window: u64,
    pub(crate) hot_states: usize,
    pub(crate) cold_states: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { kv: 32, cold: 48, window: 16 + 4 * 3, cold_window: 12, hot_states: 3, cold_states: 4 }
    }
}

pub(crate) struct Toy {
    pub(crate) snapshots: TieredSnapshots<Window>,
    pub(crate) tiers: TieredCache<Kv>,
    pub(crate) root: Root,
    pub(crate) engine: Engine<Serving<Memory>>,
    pub(crate) stream: Stream<Host>,
    pub(crate) fake: FakeBackend<Host>,
    sizes: Sizes,
}

/// What a request started with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) blocks: u64,
    pub(crate) is_cold: bool,
}

pub(crate) struct Request {
    kv: Ticket<Kv>,
    window: Ticket<Window>,
}

fn values(tokens: &[u32]) -> Vec<u64> {
    let mut last = 1;
    let value = |token: &u32| {
        last = (last ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64).rotate_left(23) ^ 0x51;
        last
    };
    tokens.iter().map(value).collect()
}

pub(crate) fn prompt(first: u32, blocks: usize) -> Vec<u32> {
    (0..(blocks * PER_BLOCK) as u32).map(|index| first * 1000 + index).collect()
}

fn tokens(count: usize) -> Tokens {
    Tokens::new(count as u64)
}

impl Toy {
    pub(crate) fn new(sizes: Sizes) -> Self {
        let fake = FakeBackend::<Host>::asynchronous();
        let device = Device::new(fake.clone(), Bytes::kib(64));
        let mut engine = Engine::open(&device);
        let pool = |blocks| PoolSpec::fixed(tokens(PER_BLOCK), PER_BLOCK, Blocks::new(blocks));
        let lines = engine.declare_bundle::<Memory>(MemorySpec {
            kv: pool(sizes.kv),
            cold: pool(sizes.cold),
            window: pool(sizes.window),
            cold_window: pool(sizes.cold_window),
        });
        let stream = engine.declare(StreamSpec { scratch: Bytes::new(256) });
        let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::kib(64))).unwrap().carve(lines).unwrap();
        let stream = engine.open_stream(stream).unwrap();
        let engine = engine.serve::<Memory>().unwrap();
        let spec = |blocks| PrefixCacheSpec::new(Blocks::new(blocks));
        let hot = PrefixCache::new(&engine.bundle().kv.handle(), spec(sizes.kv)).unwrap();
        let cold = PrefixCache::new(&engine.bundle().cold.handle(), spec(sizes.cold)).unwrap();
        let tiers = TieredCache::new(hot, cold, TierSpec { paths: 8, longest: MOST }).unwrap();
        let root = tiers.root(&RootKey::new("model")).unwrap();
        let spec = SnapshotSpec { hot: sizes.hot_states, cold: sizes.cold_states, moving: 2, longest: MOST };
        let snapshots = TieredSnapshots::new(&tiers, &engine.bundle().cold_window.handle(), spec).unwrap();
        Toy { snapshots, tiers, root, engine, stream, fake, sizes }
    }

    /// The same key again, after it was forgotten.
    pub(crate) fn root_again(&mut self) {
        self.root = self.tiers.root(&RootKey::new("model")).unwrap();
    }

    /// All but the last token, which is computed in any case.
    fn content<'t>(&self, tokens: &'t [u32]) -> Content<'t> {
        Content::new(self.root, &tokens[..tokens.len() - 1])
    }

    pub(crate) fn find(&mut self, tokens: &[u32]) -> Result<Option<FoundState<Kv, Window>>, TierError> {
        let content = self.content(tokens);
        let lease = self.tiers.lookup(&content)?;
        self.snapshots.find(&self.tiers, &lease, &content)
    }

    /// A request that starts with what was found.
    pub(crate) fn open(
        &mut self,
        prompt: &[u32],
        found: Option<FoundState<Kv, Window>>,
    ) -> Result<(Request, Found), Failed> {
        let blocks = found.as_ref().map_or(Blocks::ZERO, FoundState::blocks);
        let mut lease = self.tiers.lookup(&self.content(prompt))?;
        lease.shorten(blocks);
        let mut request = Request { kv: lease.open(MOST), window: self.engine.bundle().window.open(MOST) };
        let started = Found { blocks: blocks.count(), is_cold: found.as_ref().is_some_and(FoundState::is_cold) };
        if let Some(found) = found {
            let content = Content::new(self.root, &prompt[..blocks.count() as usize * PER_BLOCK]);
            let mut step = self.engine.step(&mut self.stream)?;
            let MemoryView { kv, cold, window, cold_window } = &mut step.buffers;
            let restored = self.tiers.restore(step.on, kv, cold, &mut request.kv, &content)?;
            let state = found.copy(step.on, window, cold_window, &mut request.window)?;
            let fence = step.finish()?;
            request.kv.advance(restored, &fence)?;
            request.window.advance(state, &fence)?;
            assert_eq!(request.kv.tokens(), tokens(blocks.count() as usize * PER_BLOCK));
            assert_eq!(request.window.tokens(), request.kv.tokens());
        }
        self.verify(&request, &values(&prompt[..request.kv.tokens().count() as usize]))?;
        Ok((request, started))
    }

    /// Computes what is missing of a request.
    fn write(&mut self, request: &mut Request, prompt: &[u32]) -> Result<Settled, Failed> {
        let from = request.kv.tokens().count() as usize;
        let more = tokens(prompt.len() - from);
        request.kv.extend(more)?;
        request.window.extend(more)?;
        let values = values(prompt);
        let mut step = self.engine.step(&mut self.stream)?;
        for (index, values) in values.chunks(PER_BLOCK).enumerate().skip(from / PER_BLOCK) {
            let MemoryView { kv, window, .. } = &mut step.buffers;
            let range = 0..values.len();
            let mut block = kv.block_mut(&mut request.kv, index)?;
            step.on.write(&mut block.range(range.clone()).unwrap(), values)?;
            let mut block = window.block_mut(&mut request.window, index)?;
            step.on.write(&mut block.range(range).unwrap(), values)?;
        }
        let fence = step.finish()?;
        request.kv.advance(more, &fence)?;
        request.window.advance(more, &fence)?;
        Ok(fence.wait()?)
    }

    /// What a request would compute with is right: all of its blocks, and its window.
    fn verify(&mut self, request: &Request, values: &[u64]) -> Result<(), Failed> {
        let step = self.engine.step(&mut self.stream)?;
        for (index, expected) in values.chunks(PER_BLOCK).enumerate() {
            let mut block = [0; PER_BLOCK];
            step.on.read(step.buffers.kv.block(&request.kv, index)?, &mut block)?;
            assert_eq!(&block[..expected.len()], expected, "block {index}");
        }
        for index in window_of(values.len()) {
            let expected = &values[index * PER_BLOCK..values.len().min((index + 1) * PER_BLOCK)];
            let mut block = [0; PER_BLOCK];
            step.on.read(step.buffers.window.block(&request.window, index)?, &mut block)?;
            assert_eq!(&block[..expected.len()], expected, "block {index} of the window");
        }
        step.finish()?.wait()?;
        Ok(())
    }

    /// Keeps a copy of the window at the end of what is cached.
    fn keep(&mut self, request: &Request) -> Result<(), Failed> {
        let cached = request.kv.cached().count() as usize;
        if cached == 0 || self.snapshots.hot().has(&request.kv) {
            return Ok(());
        }
        let mut copy = Arc::new(self.engine.bundle().window.open(MOST));
        let to = Arc::get_mut(&mut copy).unwrap();
        let blocks = window_of(cached);
        to.skip(Blocks::new(blocks.start as u64));
        to.push(Blocks::new(blocks.len() as u64))?;
        let mut step = self.engine.step(&mut self.stream)?;
        for index in blocks.clone() {
            let (from, mut to) = step.buffers.window.copy_pair((&request.window, index), (&mut *to, index))?;
            step.on.copy::<u64>(&mut to, from)?;
        }
        let fence = step.finish()?;
        to.advance(tokens(cached - blocks.start * PER_BLOCK), &fence)?;
        assert!(self.snapshots.hot_mut().keep(&request.kv, copy, &fence.wait()?));
        Ok(())
    }

    /// A request from its start to its end.
    pub(crate) fn serve(&mut self, prompt: &[u32]) -> Result<Found, Failed> {
        let found = self.find(prompt)?;
        let (mut request, found) = self.open(prompt, found)?;
        let settled = self.write(&mut request, prompt)?;
        self.verify(&request, &values(prompt))?;
        // All but the last token: a copy at the end of a prompt that ends with a block would start nobody.
        let content = self.content(prompt);
        self.tiers.hot().publish(&mut request.kv, &settled, &content)?;
        self.keep(&request)?;
        drop(request);
        self.check();
        Ok(found)
    }

    /// Launches copies to the second tier.
    pub(crate) fn send(&mut self, most: usize) -> Result<usize, Failed> {
        let Toy { snapshots, tiers, engine, stream, .. } = self;
        let mut step = engine.step(stream)?;
        let MemoryView { kv, cold, window, cold_window } = &mut step.buffers;
        let (sent, _) = snapshots.spill(step.on, tiers, (kv, cold), (window, cold_window), most)?;
        let fence = step.finish()?;
        tiers.sent(&fence)?;
        snapshots.sent(&fence)?;
        Ok(sent)
    }

    fn finish(&mut self) -> Result<Settled, Failed> {
        Ok(self.engine.step(&mut self.stream)?.finish()?.wait()?)
    }

    /// Proof that everything launched so far is done.
    pub(crate) fn wait(&mut self) -> Settled {
        self.finish().unwrap()
    }

    /// Publishes what is in the second tier.
    pub(crate) fn arrive(&mut self) -> Result<usize, Failed> {
        let settled = self.finish()?;
        self.tiers.settle(&settled)?;
        Ok(self.snapshots.settle(&self.tiers, &settled)?)
    }

    pub(crate) fn spill(&mut self, most: usize) -> Result<usize, Failed> {
        self.send(most)?;
        let arrived = self.arrive()?;
        self.check();
        Ok(arrived)
    }

    /// The first tier gives everything up.
    pub(crate) fn give_up(&mut self) {
        self.wait();
        self.tiers.hot().evict(Blocks::new(1000));
        while self.snapshots.hot_mut().evict_one() {}
        self.check();
    }

    /// Each pool by its own books, when no request has any block.
    pub(crate) fn check(&mut self) {
        // What launches could reach comes back when they are done. The device may fail once.
        let _ = self.finish();
        let _ = self.finish();
        let (tiers, states, bundle) = (self.tiers.stats(), self.snapshots.stats(), self.engine.bundle());
        let Sizes { kv, cold, window, cold_window, hot_states, cold_states } = self.sizes;
        assert_eq!(bundle.kv.free().count() + tiers.hot.cached.count(), kv, "{tiers:?}");
        assert_eq!(bundle.cold.free().count() + tiers.cold.cached.count() + tiers.moving.count(), cold, "{tiers:?}");
        assert_eq!(bundle.window.free().count() + self.snapshots.hot().blocks().count(), window, "{states:?}");
        assert_eq!(bundle.cold_window.free().count() + states.cold_blocks.count(), cold_window, "{states:?}");
        assert!(states.hot <= hot_states && states.cold <= cold_states && states.moving <= 2, "{states:?}");
    }
}

/// The blocks that the token after `count` tokens looks back into.
fn window_of(count: usize) -> std::ops::Range<usize> {
    (count + 1).saturating_sub(WINDOW) / PER_BLOCK..count.div_ceil(PER_BLOCK)
}
