//! row: c
//! error: E0499
//! says: cannot borrow `step.scratch` as mutable more than once
//! Rewinding under a span that is still in use.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    let mut nested = step.scratch.nested();
    let mut inner = nested.take::<f32>(64)?;
    #[cfg(crime)]
    let outer = step.scratch.take::<f32>(64)?;
    #[cfg(not(crime))]
    let outer = nested.take::<f32>(64)?;
    host::add_assign(step.on, &mut inner, outer)?;
    Ok(())
}
