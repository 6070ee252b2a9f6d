//! Row r, an honest program: follower A is dropped with a launch in flight on a shared block; follower B then retires with
//! its own, older, valid proof.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving_late();
    let (first, settled) = written(&mut engine, &mut stream)?;
    let prefix = first.written(&settled)?.publish();
    let (a, b) = (prefix.open(Tokens::new(4)), prefix.open(Tokens::new(4)));
    drop(prefix);
    first.retire(&settled)?;

    let mut read = |of: &Ticket<GlobalKv<f32>>| -> Result<Fence, Error> {
        let mut step = engine.step(&mut stream)?;
        let LlamaView { work, kv, .. } = &mut step.buffers;
        host::square(step.on, &mut work.attn, kv.block(of, 0)?)?;
        Ok(step.finish()?)
    };
    let b_done = read(&b)?.wait()?;
    let in_flight = read(&a)?;
    drop(a);
    let Err(InFlight(b)) = b.retire(&b_done) else { return Err("freed under A's launch".into()) };
    drop(b);
    assert_eq!(engine.bundle().kv.free(), Blocks::new(63), "A's launch still reads it");
    in_flight.wait()?;
    assert_eq!(engine.bundle().kv.free(), Blocks::new(64));
    Ok(())
}
