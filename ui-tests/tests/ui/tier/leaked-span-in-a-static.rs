//! row: b
//! error: E0597
//! says: `engine` does not live long enough
//! A span that is leaked, so that it outlives its model.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let step = engine.step(&mut stream)?;
    #[cfg(crime)]
    let kept: &'static StableSpan<'static, f32, Eager<Host>> = Box::leak(Box::new(step.buffers.weights.embed));
    #[cfg(not(crime))]
    let kept = step.buffers.weights.embed;
    assert_eq!(kept.len(), 256);
    Ok(())
}
