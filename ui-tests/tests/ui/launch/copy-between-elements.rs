//! row: k
//! error: E0277
//! says: the kernel takes `f32` elements, this span holds `u32`
//! A copy that would reinterpret.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { work, .. } = &mut step.buffers;
    #[cfg(crime)]
    step.on.copy::<f32>(&mut work.hidden, &work.tokens)?;
    #[cfg(not(crime))]
    step.on.copy::<f32>(&mut work.hidden, &work.attn)?;
    Ok(())
}
