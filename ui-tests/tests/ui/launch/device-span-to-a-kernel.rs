//! row: k
//! error: E0277
//! says: a kernel cannot read `DeviceSpan<'_, f32>`
//! A kernel that reads where the memory may have moved away.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let attn = step.buffers.work.attn.read();
    #[cfg(crime)]
    let attn = attn.widen();
    host::add_assign(step.on, &mut step.buffers.work.hidden, attn)?;
    Ok(())
}
