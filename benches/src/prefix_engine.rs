//! A serving engine whose pool is as large as its cache, in blocks of no size: what is measured is the books.

use std::error::Error;

use memtier::{
    BlockPool, Blocks, Bytes, Device, Engine, GlobalKv, Host, HostBackend, Limits, PoolHandle, PoolSpec, PrefixCache,
    PrefixCacheSpec, Root, RootKey, Serving, Settled, Space, Stream, StreamSpec, Ticket, Tokens, graph_captured,
};

/// Tokens in one block.
pub(crate) const PER_BLOCK: usize = 16;

/// One number a block.
pub(crate) type Kv = GlobalKv<f32>;

/// What the engine owns.
#[graph_captured]
pub(crate) struct Cached<S: Space = Host> {
    kv: BlockPool<Kv, S>,
}

/// The engine and its cache.
pub(crate) struct PrefixEngine {
    pub(crate) cache: PrefixCache<Kv>,
    pub(crate) root: Root,
    pub(crate) pool: PoolHandle<Kv>,
    stream: Stream<Host>,
    engine: Engine<Serving<Cached>>,
}

impl PrefixEngine {
    /// Nothing is cached yet.
    pub(crate) fn new(blocks: usize) -> Result<Self, Box<dyn Error>> {
        let blocks = Blocks::new(blocks as u64);
        let memory = Bytes::mib(64);
        let mut engine = Engine::open(&Device::new(HostBackend::new(), memory));
        let pool = PoolSpec::fixed(Tokens::new(PER_BLOCK as u64), 1, blocks);
        let lines = engine.declare_bundle::<Cached>(CachedSpec { kv: pool });
        let stream = engine.declare(StreamSpec { scratch: Bytes::new(4096) });
        let mut engine = engine.plan(Limits::new(Host::NAME, memory))?.carve(lines)?;
        let mut stream = engine.open_stream(stream)?;
        let mut engine = engine.serve::<Cached>()?;
        engine.step(&mut stream)?.finish()?.wait()?;
        let pool = engine.bundle().kv.handle();
        let cache = PrefixCache::new(&pool, PrefixCacheSpec::new(blocks))?;
        let root = cache.root(&RootKey::new("bench"))?;
        Ok(PrefixEngine { cache, root, pool, stream, engine })
    }

    /// Says that `count` blocks of a request are written, and waits for it.
    pub(crate) fn write(&mut self, ticket: &mut Ticket<Kv>, count: usize) -> Result<Settled, Box<dyn Error>> {
        let mut step = self.engine.step(&mut self.stream)?;
        for index in 0..count {
            step.buffers.kv.block_mut(ticket, index)?;
        }
        let fence = step.finish()?;
        ticket.advance(Tokens::new((count * PER_BLOCK) as u64), &fence)?;
        Ok(fence.wait()?)
    }
}
