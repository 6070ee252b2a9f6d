//! Row a, an honest engine with cancellation: the page table names a request's block, the client goes away, another request
//! comes, the graph is replayed.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let graph = engine.record(&mut stream, |step| forward(step))?;
    let cancelled = ticket(&engine);
    let mut step = engine.step(&mut stream)?;
    step.buffers.table.set(step.on, 0, &cancelled)?;
    step.on.write(&mut step.buffers.work.tokens, &[1; 8])?;
    step.finish()?.wait()?;
    std::thread::spawn(move || drop(cancelled)).join().map_err(|_| "the client panicked")?;

    // Its row pins the block: a new request gets another one.
    assert_eq!(engine.bundle().kv.free(), Blocks::new(63));
    let mut fresh = ticket(&engine);
    let mut step = engine.step(&mut stream)?;
    step.on.write(&mut step.buffers.kv.block_mut(&mut fresh, 0)?, &[5.0; 8])?;
    step.replay(graph)?;
    let mut values = [0.0; 8];
    step.on.read(step.buffers.kv.block(&fresh, 0)?, &mut values)?;
    assert_eq!(values, [5.0; 8], "the replay wrote into somebody else's block");
    step.buffers.table.clear(step.on, 0)?;
    step.finish()?.wait()?;
    assert_eq!(engine.bundle().kv.free(), Blocks::new(63), "cleared: only the new request's block is out");
    Ok(())
}
