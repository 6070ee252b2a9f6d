//! row: k
//! error: E0277
//! says: the kernel takes `f32` elements, this span holds `u32`
//! A buffer read into host values of another element.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let step = engine.step(&mut stream)?;
    #[cfg(crime)]
    step.on.read::<f32>(&step.buffers.work.tokens, &mut [0.0; 8])?;
    #[cfg(not(crime))]
    step.on.read::<u32>(&step.buffers.work.tokens, &mut [0; 8])?;
    Ok(())
}
