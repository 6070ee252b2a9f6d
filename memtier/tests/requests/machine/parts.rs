//! What a machine is made of: once at its start, and again when its process starts again.

use std::sync::Arc;

use memtier::{
    Blocks, Bytes, Device, Engine, FakeBackend, Host, Limits, PinOwner, PoolSpec, PrefixCache, PrefixCacheSpec,
    RootKey, Serving, Settled, Space, Stream, StreamSpec, TierSpec, TieredCache, Tokens,
};
use memtier_store::{PrefixStore, StoreSpec};
use object_store::{memory::InMemory, path::Path};

use super::{BLOCKS, CACHED, COLD, Kv, MOST, Machine, Memory, MemorySpec, PER_BLOCK};
use crate::{reference::Reference, tally::Tally};

/// An engine that has served nothing yet.
pub(super) struct Parts {
    cache: PrefixCache<Kv>,
    tiers: TieredCache<Kv>,
    engine: Engine<Serving<Memory>>,
    stream: Stream<Host>,
    fake: FakeBackend<Host>,
    settled: Settled,
}

impl Parts {
    fn new() -> Self {
        let fake = FakeBackend::<Host>::new();
        let device = Device::new(fake.clone(), Bytes::kib(64));
        let mut engine = Engine::open(&device);
        let pool = |blocks| PoolSpec::fixed(Tokens::new(PER_BLOCK as u64), PER_BLOCK, Blocks::new(blocks));
        let lines = engine.declare_bundle::<Memory>(MemorySpec { kv: pool(BLOCKS), cold: pool(COLD) });
        let stream = engine.declare(StreamSpec { scratch: Bytes::new(256) });
        let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::kib(64))).unwrap().carve(lines).unwrap();
        let mut stream = engine.open_stream(stream).unwrap();
        let mut engine = engine.serve::<Memory>().unwrap();
        let settled = engine.step(&mut stream).unwrap().finish().unwrap().wait().unwrap();
        let spec = PrefixCacheSpec { roots: 6, pinned: Blocks::new(8), ..PrefixCacheSpec::new(Blocks::new(CACHED)) };
        let cache = PrefixCache::new(&engine.bundle().kv.handle(), spec).unwrap();
        cache.set_pin_budget(PinOwner(1), Blocks::new(8)).unwrap();
        let cold = PrefixCacheSpec { roots: 6, ..PrefixCacheSpec::new(Blocks::new(COLD)) };
        let cold = PrefixCache::new(&engine.bundle().cold.handle(), cold).unwrap();
        let spec = TierSpec { paths: 4, longest: Tokens::new(MOST as u64) };
        let tiers = TieredCache::new(cache.clone(), cold, spec).unwrap();
        Parts { cache, tiers, engine, stream, fake, settled }
    }
}

impl Machine {
    pub(crate) fn new(forks: bool) -> Self {
        let Parts { cache, tiers, engine, stream, fake, settled } = Parts::new();
        let names = vec![0, 1];
        // All of a save is one object, so that the reference knows what is loaded at a time.
        let store = PrefixStore::new(Arc::new(InMemory::new()), Path::from("history"), StoreSpec::default());
        Machine {
            requests: Vec::new(),
            pins: Vec::new(),
            held: Vec::new(),
            roots: names.iter().map(|name| tiers.root(&RootKey::new([*name])).unwrap()).collect(),
            next_root: 2,
            names,
            cache,
            tiers,
            engine,
            stream,
            fake,
            settled,
            store,
            saved: Vec::new(),
            reference: Reference::default(),
            tally: Tally::default(),
            forks,
        }
    }

    /// The process ends, whatever was going on, and another one starts: what was saved is all that is left.
    pub(super) fn restart(&mut self) {
        self.requests.clear();
        self.pins.clear();
        self.held.clear();
        let Parts { cache, tiers, engine, stream, fake, settled } = Parts::new();
        (self.cache, self.tiers, self.engine, self.stream) = (cache, tiers, engine, stream);
        (self.fake, self.settled) = (fake, settled);
        self.roots = self.names.iter().map(|name| self.tiers.root(&RootKey::new([*name])).unwrap()).collect();
        self.reference = Reference::default();
        self.tally.restarts += 1;
        self.reload();
        let is_known = |name: &&crate::reference::Name| self.names.contains(&name.0);
        assert_eq!(self.reference.cached(), self.saved.iter().filter(is_known).count(), "all that was saved is back");
    }
}
