//! Spilling and restoring take nothing from the heap after warm-up: every allocation of the process is counted.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use memtier::{
    BlockPool, Blocks, Bytes, Content, Device, Engine, FoundState, GlobalKv, Host, HostBackend, Limits, PoolSpec,
    PrefixCache, PrefixCacheSpec, Root, RootKey, Serving, SnapshotSpec, Space, Stream, StreamSpec, SwaKv, Ticket,
    TierSpec, TieredCache, TieredSnapshots, Tokens, graph_captured,
};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[graph_captured]
struct Memory<S: Space = Host> {
    kv: BlockPool<GlobalKv<u32>, S>,
    cold: BlockPool<GlobalKv<u32>, S>,
    window: BlockPool<SwaKv<u32>, S>,
    cold_window: BlockPool<SwaKv<u32>, S>,
}

struct Server {
    engine: Engine<Serving<Memory>>,
    stream: Stream<Host>,
    tiers: TieredCache<GlobalKv<u32>>,
    snapshots: TieredSnapshots<SwaKv<u32>>,
    /// For the next copy, which a request brings with it when it is taken in.
    copies: Vec<Arc<Ticket<SwaKv<u32>>>>,
    root: Root,
}

impl Server {
    /// One request of 33 tokens in a pool of 16 blocks, whose window is its last two blocks. How many blocks came back from the
    /// second tier.
    fn serve(&mut self, tokens: &[u32]) -> u64 {
        let content = Content::new(self.root, &tokens[..32]);
        let most = Tokens::new(32);
        let mut lease = self.tiers.lookup(&content).unwrap();
        let found = self.snapshots.find(&self.tiers, &lease, &content).unwrap();
        lease.shorten(found.as_ref().map_or(Blocks::ZERO, FoundState::blocks));
        let mut ticket = lease.open(most);
        let mut state = self.engine.bundle().window.open(most);
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let MemoryView { kv, cold, window, cold_window } = &mut step.buffers;
        let (mut restored, mut held) = (Tokens::ZERO, Tokens::ZERO);
        if let Some(found) = found {
            restored = self.tiers.restore(step.on, kv, cold, &mut ticket, &content).unwrap();
            held = found.copy(step.on, window, cold_window, &mut state).unwrap();
        }
        let known = ticket.tokens().count() + restored.count();
        ticket.push(Blocks::new(8 - ticket.blocks().count())).unwrap();
        for index in known as usize / 4..8 {
            step.on.write(&mut kv.block_mut(&mut ticket, index).unwrap(), &tokens[4 * index..4 * index + 4]).unwrap();
        }
        // A copy of the window at the end, of the values that were found or of new ones.
        let copy = self.copies.iter_mut().find(|copy| Arc::strong_count(copy) == 1).unwrap();
        let to = Arc::get_mut(copy).unwrap();
        to.truncate(Blocks::ZERO);
        to.skip(Blocks::new(6));
        to.push(Blocks::new(2)).unwrap();
        for index in 6..8 {
            let mut block = [0; 4];
            block.copy_from_slice(&tokens[4 * index..4 * index + 4]);
            if !held.is_zero() {
                let expected = std::mem::take(&mut block);
                step.on.read(window.block(&state, index).unwrap(), &mut block).unwrap();
                assert_eq!(block, expected);
            }
            step.on.write(&mut window.block_mut(to, index).unwrap(), &block).unwrap();
        }
        let (prefix, states) = ((&*kv, &mut *cold), (&*window, &mut *cold_window));
        self.snapshots.spill(step.on, &mut self.tiers, prefix, states, 2).unwrap();
        self.tiers.spill(step.on, kv, cold, Blocks::new(8)).unwrap();
        let fence = step.finish().unwrap();
        ticket.advance(Tokens::new(32 - ticket.tokens().count()), &fence).unwrap();
        to.advance(Tokens::new(8), &fence).unwrap();
        state.advance(held, &fence).unwrap();
        self.tiers.sent(&fence).unwrap();
        self.snapshots.sent(&fence).unwrap();
        let settled = fence.wait().unwrap();
        self.tiers.settle(&settled).unwrap();
        self.snapshots.settle(&self.tiers, &settled).unwrap();
        self.tiers.hot().publish(&mut ticket, &settled, &content).unwrap();
        let copy = copy.clone();
        assert!(self.snapshots.hot_mut().keep(&ticket, copy, &settled));
        restored.count() / 4
    }
}

#[test]
fn spilling_and_restoring_take_nothing_from_the_heap() {
    let device = Device::new(HostBackend::new(), Bytes::kib(64));
    let mut engine = Engine::open(&device);
    let pool = |blocks| PoolSpec::fixed(Tokens::new(4), 4, Blocks::new(blocks));
    let lines = engine.declare_bundle::<Memory>(MemorySpec {
        kv: pool(16),
        cold: pool(64),
        window: pool(16),
        cold_window: pool(16),
    });
    let stream = engine.declare(StreamSpec { scratch: Bytes::new(256) });
    let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::kib(64))).unwrap().carve(lines).unwrap();
    let stream = engine.open_stream(stream).unwrap();
    let engine = engine.serve::<Memory>().unwrap();
    let hot = PrefixCache::new(&engine.bundle().kv.handle(), PrefixCacheSpec::new(Blocks::new(16))).unwrap();
    let cold = PrefixCache::new(&engine.bundle().cold.handle(), PrefixCacheSpec::new(Blocks::new(64))).unwrap();
    let tiers = TieredCache::new(hot, cold, TierSpec { paths: 4, longest: Tokens::new(32) }).unwrap();
    let root = tiers.root(&RootKey::new("model")).unwrap();
    let spec = SnapshotSpec { hot: 3, cold: 8, moving: 2, longest: Tokens::new(32) };
    let snapshots = TieredSnapshots::new(&tiers, &engine.bundle().cold_window.handle(), spec).unwrap();
    let copies = (0..5).map(|_| Arc::new(engine.bundle().window.open(Tokens::new(32)))).collect();
    let mut server = Server { engine, stream, tiers, snapshots, copies, root };
    let prompts: Vec<Vec<u32>> = (0..6).map(|first| (first * 100..first * 100 + 33).collect()).collect();
    let round = |server: &mut Server| prompts.iter().map(|tokens| server.serve(tokens)).sum::<u64>();
    for _ in 0..20 {
        round(&mut server);
    }
    let (before, mut restored) = (ALLOCATIONS.load(Ordering::SeqCst), 0);
    for _ in 0..200 {
        restored += round(&mut server);
    }
    let after = ALLOCATIONS.load(Ordering::SeqCst);
    assert!(restored > 5_000, "{restored} blocks restored: the second tier was hardly used");
    assert_eq!(after - before, 0, "allocations in 1,200 requests");
}
