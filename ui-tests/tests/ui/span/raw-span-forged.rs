//! row: n
//! error: E0422
//! says: cannot find struct, variant or union type `RawSpan` in crate `memtier`
//! What a launch gets of a span, made from a number: its type has no name outside.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let step = engine.step(&mut stream)?;
    let honest = Input::<f32, Eager<Host>>::input(step.buffers.weights.embed);
    #[cfg(crime)]
    let honest = memtier::RawSpan::<f32> { addr: 4096, len: 8, ..honest };
    assert_eq!(honest.units(), 256);
    Ok(())
}
