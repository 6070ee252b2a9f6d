//! Row j: growing from several threads at once: every commit must add its own blocks, with memory behind them.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let pool = PoolSpec {
        block_elements: 1024,
        floor: Blocks::new(2),
        initial: Blocks::new(2),
        most: Blocks::new(34),
        step: Blocks::new(1),
        ..POOL
    };
    for _ in 0..20 {
        let device = Device::new(HostBackend::new(), Bytes::mib(1));
        let mut engine = Engine::open(&device);
        let lines = engine.declare_bundle::<Llama>(LlamaSpec { kv: pool, ..spec() });
        let stream = engine.declare(STREAM);
        let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
        let mut stream = engine.open_stream(stream)?;
        let mut engine = engine.serve::<Llama>()?;
        let kv = &engine.bundle().kv;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some(commit) = kv.planned_commit() {
                        kv.grow(commit).unwrap();
                    }
                });
            }
        });
        assert_eq!(device.report().planned_commits, 32);
        let mut step = engine.step(&mut stream)?;
        step.on.host_op((&mut step.buffers.kv.slab_mut(),), |(slab,)| {
            assert_eq!(slab.units.len(), 34 * 1024);
            slab.units.fill(1.0);
            Ok(())
        })?;
    }
    Ok(())
}
