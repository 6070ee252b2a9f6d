//! A serving engine whose KV is one number a token.

use memtier::{
    BlockPool, Blocks, Bytes, Content, Device, Engine, FakeBackend, Fence, GlobalKv, Host, Limits, PageTable, PoolSpec,
    PrefixCache, PrefixCacheSpec, Root, RootKey, Serving, Settled, Space, Stream, StreamSpec, TableSpec, Ticket,
    Tokens, graph_captured,
};

/// Tokens in one block.
pub(crate) const PER_BLOCK: u64 = 4;
/// Tokens that a request has room for.
pub(crate) const MOST: Tokens = Tokens::new(64 * PER_BLOCK);

pub(crate) type Kv = GlobalKv<u64>;
pub(crate) type Cache = PrefixCache<Kv>;

#[graph_captured]
pub(crate) struct Memory<S: Space = Host> {
    pub(crate) kv: BlockPool<Kv, S>,
    pub(crate) rows: PageTable<Kv, S>,
}

/// The engine, its only stream, and a cache.
pub(crate) struct Fixture {
    pub(crate) cache: Cache,
    pub(crate) root: Root,
    pub(crate) stream: Stream<Host>,
    pub(crate) engine: Engine<Serving<Memory>>,
    pub(crate) fake: FakeBackend<Host>,
}

/// A pool of `blocks` blocks, all there from the start.
pub(crate) fn fixed(blocks: u64) -> PoolSpec {
    PoolSpec::fixed(Tokens::new(PER_BLOCK), PER_BLOCK as usize, Blocks::new(blocks))
}

/// Tokens of `blocks` blocks, which start with `first`.
pub(crate) fn tokens(first: u32, blocks: u64) -> Vec<u32> {
    (0..(blocks * PER_BLOCK) as u32).map(|token| first + token).collect()
}

impl Fixture {
    pub(crate) fn new(pool: PoolSpec, cached: u64) -> Self {
        Self::on(FakeBackend::new(), pool, PrefixCacheSpec::new(Blocks::new(cached)))
    }

    pub(crate) fn on(fake: FakeBackend<Host>, pool: PoolSpec, spec: PrefixCacheSpec) -> Self {
        let device = Device::new(fake.clone(), Bytes::mib(16));
        let mut engine = Engine::open(&device);
        let lines = engine.declare_bundle::<Memory>(MemorySpec { kv: pool, rows: TableSpec { rows: 4, columns: 64 } });
        let stream = engine.declare(StreamSpec { scratch: Bytes::new(256) });
        let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(16))).unwrap().carve(lines).unwrap();
        let mut stream = engine.open_stream(stream).unwrap();
        let mut engine = engine.serve::<Memory>().unwrap();
        engine.step(&mut stream).unwrap().finish().unwrap().wait().unwrap();
        let cache = PrefixCache::new(&engine.bundle().kv.handle(), spec).unwrap();
        let root = cache.root(&RootKey::new("weights")).unwrap();
        Fixture { cache, root, stream, engine, fake }
    }

    pub(crate) fn free(&self) -> u64 {
        self.engine.bundle().kv.free().count()
    }

    pub(crate) fn cached(&self) -> u64 {
        self.cache.stats().cached.count()
    }

    /// Blocks of `tokens` that are cached.
    pub(crate) fn found(&self, tokens: &[u32]) -> u64 {
        self.cache.lookup(&Content::new(self.root, tokens)).unwrap().blocks().count()
    }

    /// A request on what is cached of `tokens`.
    pub(crate) fn open(&self, tokens: &[u32]) -> Ticket<Kv> {
        self.cache.lookup(&Content::new(self.root, tokens)).unwrap().open(MOST)
    }

    /// Writes what `ticket` lacks of `tokens`: each token's value is the token. The launches may be in flight.
    pub(crate) fn launch(&mut self, ticket: &mut Ticket<Kv>, tokens: &[u32]) -> Fence {
        let from = ticket.tokens().count() as usize;
        ticket.extend(Tokens::new((tokens.len() - from) as u64)).unwrap();
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let per_block = PER_BLOCK as usize;
        for index in from / per_block..tokens.len().div_ceil(per_block) {
            let range = (index * per_block).max(from)..tokens.len().min((index + 1) * per_block);
            let values: Vec<_> = tokens[range.clone()].iter().map(|token| u64::from(*token)).collect();
            let mut block = step.buffers.kv.block_mut(ticket, index).unwrap();
            let first = range.start - index * per_block;
            step.on.write(&mut block.range(first..first + values.len()).unwrap(), &values).unwrap();
        }
        let fence = step.finish().unwrap();
        ticket.advance(Tokens::new((tokens.len() - from) as u64), &fence).unwrap();
        fence
    }

    pub(crate) fn write(&mut self, ticket: &mut Ticket<Kv>, tokens: &[u32]) -> Settled {
        self.launch(ticket, tokens).wait().unwrap()
    }

    /// A request that wrote `tokens` and published them.
    pub(crate) fn publish(&mut self, tokens: &[u32]) -> Ticket<Kv> {
        let mut ticket = self.open(tokens);
        let settled = self.write(&mut ticket, tokens);
        self.cache.publish(&mut ticket, &settled, &Content::new(self.root, tokens)).unwrap();
        ticket
    }

    /// Checks what is in memory of a request: holes are skipped.
    pub(crate) fn verify(&mut self, ticket: &Ticket<Kv>, tokens: &[u32]) {
        let step = self.engine.step(&mut self.stream).unwrap();
        for (index, expected) in tokens.chunks(PER_BLOCK as usize).enumerate() {
            let Ok(block) = step.buffers.kv.block(ticket, index) else { continue };
            let mut values = [0; PER_BLOCK as usize];
            step.on.read(block, &mut values).unwrap();
            let expected: Vec<_> = expected.iter().map(|token| u64::from(*token)).collect();
            assert_eq!(values[..expected.len()], expected, "block {index}");
        }
        step.finish().unwrap().wait().unwrap();
    }

    /// A step that does nothing, done.
    pub(crate) fn settle(&mut self) -> Settled {
        self.engine.step(&mut self.stream).unwrap().finish().unwrap().wait().unwrap()
    }

    /// Own block `index`.
    pub(crate) fn own(&mut self, ticket: &mut Ticket<Kv>, index: usize) -> bool {
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let owned = step.buffers.kv.own(step.on, ticket, index).unwrap();
        step.finish().unwrap().wait().unwrap();
        owned
    }
}
