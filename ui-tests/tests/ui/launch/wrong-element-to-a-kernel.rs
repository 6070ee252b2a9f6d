//! row: k
//! error: E0277
//! says: the kernel takes `f32` elements, this span holds `u32`
//! The bits of one element read as another.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { work, .. } = &mut step.buffers;
    #[cfg(crime)]
    host::add_assign(step.on, &mut work.hidden, &work.tokens)?;
    #[cfg(not(crime))]
    host::add_assign(step.on, &mut work.hidden, &work.attn)?;
    Ok(())
}
