//! row: m
//! error: E0502
//! says: cannot borrow `work.hidden` as immutable
//! A copy between two ends of one buffer.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let work = &mut step.buffers.work;
    #[cfg(crime)]
    step.on.copy::<f32>(&mut work.hidden, &work.hidden)?;
    #[cfg(not(crime))]
    step.on.copy::<f32>(&mut work.hidden, &work.attn)?;
    Ok(())
}
