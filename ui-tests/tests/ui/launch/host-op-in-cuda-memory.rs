//! row: l
//! error: E0277
//! says: `Cuda` memory where `Host` memory is needed
//! A closure over slices of device memory.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    #[cfg(crime)]
    let (mut engine, mut stream) = serving_cuda();
    #[cfg(not(crime))]
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    step.on.host_op((output::<f32, _, _>(&mut step.buffers.work.hidden),), |(hidden,)| {
        hidden.fill(0.0);
        Ok(())
    })?;
    Ok(())
}
