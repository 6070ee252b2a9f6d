//! A slab that is as long as its pool may become, over memory that is not there yet. A slab ends where the memory ends.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let pool = PoolSpec {
        block_elements: 1024,
        floor: Blocks::new(2),
        initial: Blocks::new(2),
        most: Blocks::new(8),
        step: Blocks::new(2),
        ..POOL
    };
    let mut engine = loading();
    let lines = engine.declare_bundle::<Llama>(LlamaSpec { kv: pool, ..spec() });
    let stream = engine.declare(STREAM);
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut engine = engine.serve::<Llama>()?;
    for blocks in [2, 4] {
        assert_eq!(engine.bundle().kv.committed(), Blocks::new(blocks));
        let mut step = engine.step(&mut stream)?;
        let kv = &mut step.buffers.kv;
        step.on.host_op((&mut kv.slab_mut(),), move |(slab,)| {
            assert_eq!(slab.units.len(), blocks as usize * 1024);
            slab.units.fill(1.0);
            Ok(())
        })?;
        drop(step);
        let kv = &engine.bundle().kv;
        kv.grow(kv.planned_commit().ok_or("the plan paid for three")?)?;
    }
    Ok(())
}
