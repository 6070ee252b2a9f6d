//! Rows c, r: steps on two streams by turns: they are ordered, graphs stay on theirs, and blocks wait for both.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let device = Device::new(FakeBackend::<Host>::asynchronous(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let lines = declare::<Host>(&mut engine);
    let (one, two) = (engine.declare(STREAM), engine.declare(STREAM));
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let (mut one, mut two) = (engine.open_stream(one)?, engine.open_stream(two)?);
    let mut engine = engine.serve::<Llama>()?;
    let graph = engine.record(&mut one, |step| forward(step))?;
    assert!(matches!(engine.step(&mut two)?.replay(graph), Err(ReplayError::WrongStream { .. })));
    let mut ticket = ticket(&engine);
    let mut fences = Vec::new();
    for stream in [&mut one, &mut two] {
        let mut step = engine.step::<Llama>(stream)?;
        step.on.write(&mut step.buffers.kv.block_mut(&mut ticket, 0)?, &[1.0; 8])?;
        fences.push(step.finish()?);
    }
    ticket.advance(Tokens::new(1), &fences[1])?;
    assert!(fences[0].poll().is_some(), "the second step waited for the first stream");
    let first = fences[0].wait()?;
    assert!(ticket.written(&first).is_err());
    let Err(InFlight(ticket)) = ticket.retire(&first) else { return Err("freed under the second stream".into()) };
    let second = fences[1].wait()?;
    ticket.retire(&second)?;
    drop(one);
    assert!(engine.step(&mut two)?.replay(graph).is_err());
    Ok(())
}
