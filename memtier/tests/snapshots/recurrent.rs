//! The same for the state of recurrent layers: one block, however many tokens went into it.

use std::sync::Arc;

use memtier::{
    BlockPool, Blocks, Bytes, Content, Device, Engine, FakeBackend, GlobalKv, Host, Limits, PoolSpec, PrefixCache,
    PrefixCacheSpec, RecurrentState, RootKey, SnapshotSpec, Space, StreamSpec, TierSpec, TieredCache, TieredSnapshots,
    Tokens, graph_captured,
};

#[graph_captured]
struct Hybrid<S: Space = Host> {
    kv: BlockPool<GlobalKv<u64>, S>,
    cold: BlockPool<GlobalKv<u64>, S>,
    state: BlockPool<RecurrentState<u64>, S>,
    cold_state: BlockPool<RecurrentState<u64>, S>,
}

#[test]
fn recurrent_state_comes_back_with_its_prefix() {
    let device = Device::new(FakeBackend::<Host>::asynchronous(), Bytes::kib(64));
    let mut engine = Engine::open(&device);
    let kv = |blocks| PoolSpec::fixed(Tokens::new(4), 4, Blocks::new(blocks));
    let state = |count| PoolSpec::states(8, Blocks::new(count));
    let lines =
        engine.declare_bundle::<Hybrid>(HybridSpec { kv: kv(4), cold: kv(8), state: state(3), cold_state: state(1) });
    let stream = engine.declare(StreamSpec { scratch: Bytes::new(256) });
    let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::kib(64))).unwrap().carve(lines).unwrap();
    let mut stream = engine.open_stream(stream).unwrap();
    let mut engine = engine.serve::<Hybrid>().unwrap();
    let spec = |blocks| PrefixCacheSpec::new(Blocks::new(blocks));
    let hot = PrefixCache::new(&engine.bundle().kv.handle(), spec(4)).unwrap();
    let cold = PrefixCache::new(&engine.bundle().cold.handle(), spec(8)).unwrap();
    let most = Tokens::new(16);
    let mut tiers = TieredCache::new(hot, cold, TierSpec { paths: 1, longest: most }).unwrap();
    let root = tiers.root(&RootKey::new("hybrid")).unwrap();
    let spec = SnapshotSpec { hot: 1, cold: 1, moving: 1, longest: most };
    let second = engine.bundle().cold_state.handle();
    let mut snapshots = TieredSnapshots::<RecurrentState<u64>>::new(&tiers, &second, spec).unwrap();

    let tokens: Vec<u32> = (0..8).collect();
    let content = Content::new(root, &tokens);
    let (mut request, mut state) = (engine.bundle().kv.open(most), engine.bundle().state.open(most));
    request.extend(Tokens::new(8)).unwrap();
    state.extend(Tokens::new(8)).unwrap();
    let mut step = engine.step(&mut stream).unwrap();
    for index in 0..2 {
        step.on.write(&mut step.buffers.kv.block_mut(&mut request, index).unwrap(), &[index as u64; 4]).unwrap();
    }
    step.on.write(&mut step.buffers.state.block_mut(&mut state, 0).unwrap(), &[7; 8]).unwrap();
    let fence = step.finish().unwrap();
    request.advance(Tokens::new(8), &fence).unwrap();
    state.advance(Tokens::new(8), &fence).unwrap();
    let settled = fence.wait().unwrap();
    tiers.hot().publish(&mut request, &settled, &content).unwrap();
    assert!(snapshots.hot_mut().keep(&request, Arc::new(state), &settled));
    drop(request);

    let mut step = engine.step(&mut stream).unwrap();
    let HybridView { kv, cold, state, cold_state } = &mut step.buffers;
    let sent = snapshots.spill(step.on, &mut tiers, (kv, cold), (state, cold_state), 4).unwrap();
    assert_eq!(sent, (1, Blocks::new(2)));
    let fence = step.finish().unwrap();
    tiers.sent(&fence).unwrap();
    snapshots.sent(&fence).unwrap();
    let settled = fence.wait().unwrap();
    assert_eq!(tiers.settle(&settled).unwrap(), Blocks::new(2));
    assert_eq!(snapshots.settle(&tiers, &settled).unwrap(), 1);
    tiers.hot().evict(Blocks::new(4));
    assert!(snapshots.hot_mut().evict_one());
    assert_eq!((engine.bundle().kv.free(), engine.bundle().state.free()), (Blocks::new(4), Blocks::new(3)));

    let lease = tiers.lookup(&content).unwrap();
    let found = snapshots.find(&tiers, &lease, &content).unwrap().unwrap();
    assert!(found.is_cold());
    let (mut request, mut state) = (lease.open(most), engine.bundle().state.open(most));
    let mut step = engine.step(&mut stream).unwrap();
    let HybridView { kv, cold, state: states, cold_state } = &mut step.buffers;
    let restored = tiers.restore(step.on, kv, cold, &mut request, &content).unwrap();
    let held = found.copy(step.on, states, cold_state, &mut state).unwrap();
    let mut values = [0; 8];
    step.on.read(step.buffers.state.block(&state, 0).unwrap(), &mut values).unwrap();
    let fence = step.finish().unwrap();
    request.advance(restored, &fence).unwrap();
    state.advance(held, &fence).unwrap();
    assert_eq!((values, request.tokens(), state.tokens()), ([7; 8], Tokens::new(8), Tokens::new(8)));
}
