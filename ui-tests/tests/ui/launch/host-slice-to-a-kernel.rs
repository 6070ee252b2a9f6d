//! row: k
//! error: E0277
//! says: a kernel cannot read `&[f32]`
//! A slice of the heap as a kernel's input.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    #[cfg(crime)]
    let attn: &[f32] = &[0.0; 64];
    #[cfg(not(crime))]
    let attn = &step.buffers.work.attn;
    host::add_assign(step.on, &mut step.buffers.work.hidden, attn)?;
    Ok(())
}
