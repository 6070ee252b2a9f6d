//! Row j: a pool grows and gives memory back while other threads take and drop blocks: every block that is out has memory.

#![forbid(unsafe_code)]

use memtier::*;
use std::sync::atomic::{AtomicBool, Ordering};
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let pool = PoolSpec {
        block_elements: 1024,
        floor: Blocks::new(2),
        initial: Blocks::new(2),
        most: Blocks::new(18),
        step: Blocks::new(4),
        ..POOL
    };
    let device = Device::new(HostBackend::new(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let lines = engine.declare_bundle::<Llama>(LlamaSpec { kv: pool, ..spec() });
    let stream = engine.declare(STREAM);
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut engine = engine.serve::<Llama>()?;
    let handle = engine.bundle().kv.handle();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<(), Error> {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut ticket = handle.open(Tokens::new(3));
                    let _ = ticket.push(Blocks::new(3));
                }
            });
        }
        let rounds = (0..20).try_for_each(|_| -> Result<(), Error> {
            while let Some(commit) = engine.bundle().kv.planned_commit() {
                engine.bundle().kv.grow(commit)?;
            }
            for value in [1.0, 2.0] {
                let mut step = engine.step::<Llama>(&mut stream)?;
                step.on.host_op((&mut step.buffers.kv.slab_mut(),), move |(slab,)| {
                    slab.units.fill(value);
                    Ok(())
                })?;
                drop(step);
                engine.give_back::<Llama>()?;
            }
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        rounds
    })?;
    engine.drain()?.end_model();
    Ok(())
}
