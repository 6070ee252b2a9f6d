//! Row b: an idle request gets a block between `drain` and `end_model`, and takes it and its tokens into the next model.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut idle = engine.bundle().kv.open(Tokens::new(4));
    let handle = engine.bundle().kv.handle();
    let fence = engine.step::<Llama>(&mut stream)?.finish()?;
    let settled = fence.wait()?;
    let drained = engine.drain()?;
    assert!(matches!(idle.extend(Tokens::new(4)), Err(AcquireBlocksError::Draining { .. })));
    assert!(matches!(handle.acquire(), Err(AcquireBlocksError::Draining { .. })));
    assert!(matches!(idle.advance(Tokens::new(4), &fence), Err(AdvanceError::BeyondBlocks { .. })));
    assert_eq!(idle.written(&settled)?.publish().tokens(), Tokens::ZERO);

    let (mut engine, kept) = drained.end_model();
    let lines = LlamaLines {
        weights: engine.declare(DIMS),
        work: engine.keep(kept.work, &DIMS)?,
        kv: engine.keep(kept.kv, &POOL)?,
        window: engine.keep(kept.window, &POOL)?,
        table: engine.keep(kept.table, &TABLE)?,
        recent: engine.keep(kept.recent, &TABLE)?,
    };
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?.serve::<Llama>()?;
    assert!(matches!(idle.extend(Tokens::new(4)), Err(AcquireBlocksError::ModelEnded { .. })));
    let mut step = engine.step(&mut stream)?;
    assert!(matches!(step.buffers.kv.block(&idle, 0).err(), Some(BlockError::Hole { ended: true, .. })));
    assert_eq!(step.buffers.table.set(step.on, 0, &idle), Err(RowError::ModelEnded));
    Ok(())
}
