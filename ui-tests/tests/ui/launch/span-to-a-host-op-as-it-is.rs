//! row: k
//! error: E0277
//! says: is no argument of a CPU operation
//! A span handed to a CPU operation without saying whether it is read or written.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    #[cfg(crime)]
    step.on.host_op((&mut step.buffers.work.hidden,), |(out,)| {
        out.fill(1.0);
        Ok(())
    })?;
    #[cfg(not(crime))]
    step.on.host_op((output::<f32, _, _>(&mut step.buffers.work.hidden),), |(out,)| {
        out.fill(1.0);
        Ok(())
    })?;
    Ok(())
}
