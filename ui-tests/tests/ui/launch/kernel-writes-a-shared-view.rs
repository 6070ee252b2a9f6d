//! row: m
//! error: E0308
//! says: types differ in mutability
//! A kernel that writes a buffer which others may be reading.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { work, .. } = &mut step.buffers;
    #[cfg(crime)]
    host::add_assign(step.on, &work.hidden, &work.attn)?;
    #[cfg(not(crime))]
    host::add_assign(step.on, &mut work.hidden, &work.attn)?;
    Ok(())
}
