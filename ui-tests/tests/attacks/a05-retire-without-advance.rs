//! Row r: a request that never said what it wrote is retired on any old proof, with its write in flight.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving_late();
    let old = engine.step::<Llama>(&mut stream)?.finish()?.wait()?;
    let mut ticket = ticket(&engine);
    let mut step = engine.step(&mut stream)?;
    step.on.write(&mut step.buffers.kv.block_mut(&mut ticket, 0)?, &[1.0; 8])?;
    let fence = step.finish()?;
    let before = engine.bundle().kv.free();
    let Err(InFlight(ticket)) = ticket.retire(&old) else { return Err("retired with its write in flight".into()) };
    drop(ticket);
    assert_eq!(engine.bundle().kv.free(), before, "dropping waits for the write");
    fence.wait()?;
    assert_eq!(engine.bundle().kv.free(), Blocks::new(64));
    Ok(())
}
