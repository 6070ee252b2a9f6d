//! row: c
//! error: E0499
//! says: cannot borrow `step.scratch` as mutable more than once
//! Two frames on one stack: the one that ends first would take the other's memory along.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    let mut one = step.scratch.nested();
    #[cfg(crime)]
    let mut two = step.scratch.nested();
    #[cfg(not(crime))]
    let mut two = one.nested();
    let mut last = two.take::<f32>(64)?;
    #[cfg(crime)]
    let first = one.take::<f32>(64)?;
    step.on.write(&mut last, &[1.0])?;
    Ok(())
}
