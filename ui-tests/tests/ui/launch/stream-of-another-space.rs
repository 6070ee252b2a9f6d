//! row: l
//! error: E0308
//! says: expected `&mut Stream<Host>`, found `&mut Stream<Cuda>`
//! A step in host memory on a CUDA stream.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    #[cfg(crime)]
    let (_gpu, mut stream) = serving_cuda();
    let _step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    Ok(())
}
