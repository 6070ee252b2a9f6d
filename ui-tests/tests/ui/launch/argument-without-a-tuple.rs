//! row: t
//! error: E0277
//! says: is no list of arguments of a CPU operation
//! One argument of a CPU operation, not in a tuple.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let out = output::<f32, _, _>(&mut step.buffers.work.hidden);
    #[cfg(crime)]
    step.on.host_op(out, |(out,)| {
        out.fill(1.0);
        Ok(())
    })?;
    #[cfg(not(crime))]
    step.on.host_op((out,), |(out,)| {
        out.fill(1.0);
        Ok(())
    })?;
    Ok(())
}
