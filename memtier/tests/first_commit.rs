//! A pool whose first blocks cannot be had is an error of the carve, not a pool without blocks.

use memtier::{
    BlockPool, Blocks, Bytes, CarveError, Device, Engine, FakeBackend, GlobalKv, Host, Limits, PoolSpec, Space, Tokens,
    graph_captured,
};

/// Pools that are there from the start, one by itself and two in a list.
#[graph_captured]
pub struct Model {
    /// Grows.
    pub kv: BlockPool<GlobalKv<f32>>,
    /// Do not.
    pub beside: Vec<BlockPool<GlobalKv<f32>>>,
}

#[test]
fn a_pool_whose_first_blocks_are_refused_is_an_error_and_can_be_carved_again() {
    let fixed = PoolSpec::fixed(Tokens::new(16), 4096, Blocks::new(4));
    let kv = PoolSpec { initial: Blocks::new(1), step: Blocks::new(1), ..fixed };
    for failing in 0..3 {
        let fake: FakeBackend = FakeBackend::new();
        let device = Device::new(fake.clone(), Bytes::mib(4));
        let mut engine = Engine::open(&device);
        let lines = engine.declare_bundle::<Model>(ModelSpec { kv, beside: vec![fixed, fixed] });
        let engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(4))).unwrap();
        let acquired = device.report().acquisitions.iter().sum::<u64>();
        fake.fail_at(acquired + failing);
        let failed = engine.carve(lines).err().unwrap();
        assert!(matches!(failed.error, CarveError::Acquire(_)), "{failed}");
        // Once the memory is there, the same lines are good.
        let engine = failed.engine.carve(failed.lines).unwrap().serve::<Model>().unwrap();
        assert_eq!(engine.bundle().kv.committed(), Blocks::new(1));
        assert!(engine.bundle().beside.iter().all(|pool| pool.committed() == Blocks::new(4)));
    }
}
