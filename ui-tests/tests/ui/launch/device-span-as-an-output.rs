//! row: k
//! error: E0277
//! says: a kernel cannot write `DeviceSpan<'_, f32>`
//! A kernel that writes where the memory may have moved away.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { work, .. } = &mut step.buffers;
    #[cfg(crime)]
    let hidden = &mut work.hidden.read().widen();
    #[cfg(not(crime))]
    let hidden = &mut work.hidden;
    host::add_assign(step.on, hidden, &work.attn)?;
    Ok(())
}
