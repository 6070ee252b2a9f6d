//! row: k
//! error: E0277
//! says: a kernel cannot write `[{float}; 64]`
//! A kernel that writes into the caller's stack.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { work, .. } = &mut step.buffers;
    #[cfg(crime)]
    let hidden = &mut [0.0; 64];
    #[cfg(not(crime))]
    let hidden = &mut work.hidden;
    host::add_assign(step.on, hidden, &work.attn)?;
    Ok(())
}
