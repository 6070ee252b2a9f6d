//! row: k
//! error: E0277
//! says: a kernel cannot read `*const f32`
//! A raw pointer as a kernel's input.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    #[cfg(crime)]
    let attn = std::ptr::null::<f32>();
    #[cfg(not(crime))]
    let attn = &step.buffers.work.attn;
    host::add_assign(step.on, &mut step.buffers.work.hidden, attn)?;
    Ok(())
}
