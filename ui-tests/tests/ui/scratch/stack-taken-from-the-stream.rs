//! row: i
//! error: E0624
//! says: method `frame` is private
//! Scratch without a step that orders its use.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    #[cfg(crime)]
    let mut frame = stream.scratch().frame();
    #[cfg(not(crime))]
    let mut step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    #[cfg(not(crime))]
    let frame = &mut step.scratch;
    let _span = frame.take::<f32>(64)?;
    Ok(())
}
