//! Rows b, d: a part that survived one engine's model becomes a part of another engine's, on the same device. Old graphs, streams
//! and requests do not reach it.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let device = Device::new(HostBackend::new(), Bytes::mib(1));
    let (mut one, mut its_stream) = serving_on::<Host>(&device);
    let graph = one.record(&mut its_stream, |step| forward(step))?;
    let mut old = one.bundle().kv.open(Tokens::new(4));
    let (mut one, kept) = one.drain()?.end_model();
    let mut two = Engine::open(&device);
    let stream = two.declare(STREAM);
    let lines = LlamaLines {
        weights: two.declare(DIMS),
        work: two.keep(kept.work, &DIMS)?,
        kv: two.keep(kept.kv, &POOL)?,
        window: two.keep(kept.window, &POOL)?,
        table: two.keep(kept.table, &TABLE)?,
        recent: two.keep(kept.recent, &TABLE)?,
    };
    let mut two = two.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = two.open_stream(stream)?;
    let mut two = two.serve::<Llama>()?;
    assert_eq!(two.step::<Llama>(&mut its_stream).err(), Some(StepError::ForeignStream));
    assert_eq!(two.step(&mut stream)?.replay(graph), Err(ReplayError::StaleGraph));
    assert!(matches!(old.extend(Tokens::new(1)), Err(AcquireBlocksError::ModelEnded { .. })));
    let mut fresh = ticket(&two);
    let mut step = two.step::<Llama>(&mut stream)?;
    step.on.write(&mut step.buffers.kv.block_mut(&mut fresh, 0)?, &[1.0; 8])?;
    step.buffers.table.set(step.on, 0, &fresh)?;
    forward(&mut step)?;
    let fence = step.finish()?;
    fresh.advance(Tokens::new(1), &fence)?;
    let _line: Line<DecodeWorkspace> = one.declare(DIMS);
    drop(one);
    Ok(())
}
