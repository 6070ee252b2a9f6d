//! row: l
//! error: E0277
//! says: `Host` memory where `Cuda` memory is needed
//! A CUDA kernel in an engine that serves from host memory.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let work = &mut step.buffers.work;
    #[cfg(crime)]
    cuda::add_assign(step.on, &mut work.hidden, &work.attn)?;
    #[cfg(not(crime))]
    host::add_assign(step.on, &mut work.hidden, &work.attn)?;
    Ok(())
}
