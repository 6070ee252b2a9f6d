//! Row r: the recorders of two engines' steps are exchanged, and the older engine's step is finished: its number, far ahead of the
//! other engine's, would mark the other's stream, and everything launched there later would look done. A step ends on the stream it
//! was opened on.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut old, mut its_stream) = serving_late();
    let (mut young, mut stream) = serving_late();
    for _ in 0..100 {
        old.step::<Llama>(&mut its_stream)?.finish()?.wait()?;
    }
    let mut one: Step<'_, Llama, Eager<Host>> = old.step(&mut its_stream)?;
    let mut two: Step<'_, Llama, Eager<Host>> = young.step(&mut stream)?;
    std::mem::swap(&mut one.on, &mut two.on);
    one.finish()?.wait()?;
    two.finish()?.wait()?;

    let mut ticket = ticket(&young);
    let mut step = young.step::<Llama>(&mut stream)?;
    step.on.write(&mut step.buffers.kv.block_mut(&mut ticket, 0)?, &[1.0; 8])?;
    let fence = step.finish()?;
    drop(ticket);
    assert!(fence.poll().is_none(), "nobody waited for it");
    assert_eq!(young.bundle().kv.free(), Blocks::new(63), "its write is in flight");
    fence.wait()?;
    assert_eq!(young.bundle().kv.free(), Blocks::new(64));
    Ok(())
}
