//! An engine whose KV is a function of tokens, so that wrong bytes show.

use futures_executor::block_on;
use memtier::{
    BlockPool, Blocks, Bytes, Content, Device, Engine, Extra, FakeBackend, GlobalKv, Host, Limits, PoolSpec,
    PrefixCache, PrefixCacheSpec, Root, RootKey, Serving, Space, Stream, StreamSpec, Tokens, graph_captured,
};
use memtier_store::{Loaded, PrefixStore, Saved, StoreError};

pub(crate) const PER_BLOCK: usize = 4;

pub(crate) type Kv = GlobalKv<u64>;

#[graph_captured]
pub(crate) struct Memory<S: Space = Host> {
    pub(crate) kv: BlockPool<Kv, S>,
}

pub(crate) struct Toy {
    pub(crate) cache: PrefixCache<Kv>,
    pub(crate) engine: Engine<Serving<Memory>>,
    pub(crate) stream: Stream<Host>,
    blocks: u64,
}

/// What the places of tokens hold: a function of the model, everything before, and what else is there.
fn values(model: &str, tokens: &[u32], extras: &[Extra]) -> Vec<u64> {
    let mut last = model.bytes().fold(1, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte));
    let value = |(index, token): (usize, &u32)| {
        let extra = extras.iter().find(|extra| extra.token == index).map_or(0, |extra| extra.digest as u64);
        last = (last ^ u64::from(*token) ^ extra).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ 0x51;
        last
    };
    tokens.iter().enumerate().map(value).collect()
}

impl Toy {
    pub(crate) fn new(blocks: u64) -> Self {
        Self::shaped(blocks, PER_BLOCK, PER_BLOCK)
    }

    pub(crate) fn shaped(blocks: u64, per_block: usize, elements: usize) -> Self {
        let device = Device::new(FakeBackend::<Host>::asynchronous(), Bytes::kib(64));
        let mut engine = Engine::open(&device);
        let kv = PoolSpec::fixed(Tokens::new(per_block as u64), elements, Blocks::new(blocks));
        let lines = engine.declare_bundle::<Memory>(MemorySpec { kv });
        let stream = engine.declare(StreamSpec { scratch: Bytes::new(256) });
        let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::kib(64))).unwrap().carve(lines).unwrap();
        let stream = engine.open_stream(stream).unwrap();
        let engine = engine.serve::<Memory>().unwrap();
        let cache = PrefixCache::new(&engine.bundle().kv.handle(), PrefixCacheSpec::new(Blocks::new(blocks))).unwrap();
        Toy { cache, engine, stream, blocks }
    }

    pub(crate) fn root(&self, model: &str) -> Root {
        self.cache.root(&RootKey::new(model)).unwrap()
    }

    /// Serves a request and ends it. How many of its blocks were cached; those must be right. `false` blocks are computed and published.
    pub(crate) fn serve(&mut self, model: &str, tokens: &[u32], extras: &[Extra]) -> usize {
        let content = Content { root: self.root(model), tokens, extras };
        let mut ticket = self.cache.lookup(&content).unwrap().open(Tokens::new(tokens.len() as u64));
        let hit = ticket.blocks().count() as usize;
        let values = values(model, tokens, extras);
        ticket.extend(Tokens::new((tokens.len() - hit * PER_BLOCK) as u64)).unwrap();
        let mut step = self.engine.step(&mut self.stream).unwrap();
        for (index, expected) in values.chunks(PER_BLOCK).enumerate() {
            let kv = &mut step.buffers.kv;
            if index < hit {
                let mut block = [0; PER_BLOCK];
                step.on.read(kv.block(&ticket, index).unwrap(), &mut block).unwrap();
                assert_eq!(&block[..], expected, "block {index} of {tokens:?}");
            } else {
                step.on.write(&mut kv.block_mut(&mut ticket, index).unwrap(), expected).unwrap();
            }
        }
        let fence = step.finish().unwrap();
        ticket.advance(Tokens::new((tokens.len() - hit * PER_BLOCK) as u64), &fence).unwrap();
        self.cache.publish(&mut ticket, &fence.wait().unwrap(), &content).unwrap();
        drop(ticket);
        self.check();
        hit
    }

    /// How many blocks of a prompt are cached; those must be right.
    pub(crate) fn found(&mut self, model: &str, tokens: &[u32], extras: &[Extra]) -> usize {
        let content = Content { root: self.root(model), tokens, extras };
        let ticket = self.cache.lookup(&content).unwrap().open(Tokens::new(tokens.len() as u64));
        let hit = ticket.blocks().count() as usize;
        let step = self.engine.step(&mut self.stream).unwrap();
        for (index, expected) in values(model, tokens, extras).chunks(PER_BLOCK).take(hit).enumerate() {
            let mut block = [0; PER_BLOCK];
            step.on.read(step.buffers.kv.block(&ticket, index).unwrap(), &mut block).unwrap();
            assert_eq!(&block[..], expected, "block {index} of {tokens:?}");
        }
        step.finish().unwrap().wait().unwrap();
        hit
    }

    pub(crate) fn save(&mut self, store: &PrefixStore) -> Result<Saved, StoreError> {
        let mut saver = store.save(&self.cache)?;
        loop {
            let step = self.engine.step(&mut self.stream).unwrap();
            let segment = saver.gather(step.on, &step.buffers.kv)?;
            step.finish()?.wait()?;
            let Some(segment) = segment else { break };
            block_on(saver.put(&segment))?;
        }
        block_on(saver.commit())
    }

    /// `None`: there was nothing.
    pub(crate) fn load(&mut self, store: &PrefixStore) -> Result<Option<Loaded>, StoreError> {
        let before = self.cache.stats();
        let Some(mut loader) = block_on(store.load(&self.cache))? else { return Ok(None) };
        while block_on(loader.fetch())? {
            let mut step = self.engine.step(&mut self.stream).unwrap();
            let batch = loader.write(step.on, &mut step.buffers.kv)?;
            loader.publish(batch, &step.finish()?)?;
        }
        let (loaded, after) = (loader.finish(), self.cache.stats());
        assert_eq!(before.cached.count() + loaded.blocks, after.cached.count(), "{loaded:?}");
        assert_eq!(before.evicted, after.evicted, "a load evicts nothing");
        self.check();
        Ok(Some(loaded))
    }

    /// Every block is free or cached, and nothing needs a cached one.
    pub(crate) fn check(&self) {
        let stats = self.cache.stats();
        assert_eq!(self.engine.bundle().kv.free().count() + stats.cached.count(), self.blocks);
        assert_eq!(stats.cached, stats.reclaimable);
    }
}

pub(crate) fn prompt(first: u32, blocks: usize) -> Vec<u32> {
    (0..(blocks * PER_BLOCK) as u32).map(|index| first * 1000 + index).collect()
}
