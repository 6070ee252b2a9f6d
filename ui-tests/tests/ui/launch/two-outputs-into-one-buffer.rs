//! row: m
//! error: E0499
//! says: cannot borrow `work.hidden` as mutable more than once
//! One launch that writes a buffer twice.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let work = &mut step.buffers.work;
    #[cfg(crime)]
    let outputs = (output::<f32, _, _>(&mut work.hidden), output::<f32, _, _>(&mut work.hidden));
    #[cfg(not(crime))]
    let outputs = (output::<f32, _, _>(&mut work.hidden), output::<f32, _, _>(&mut work.attn));
    step.on.host_op(outputs, |(one, two)| {
        one.copy_from_slice(two);
        Ok(())
    })?;
    Ok(())
}
