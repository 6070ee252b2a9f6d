//! row: m
//! error: E0502
//! says: cannot borrow `work.hidden` as mutable
//! A read view that is still used after the buffer was written.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { work, .. } = &mut step.buffers;
    let before = work.hidden.read();
    #[cfg(not(crime))]
    host::square(step.on, &mut work.attn, before)?;
    host::square(step.on, &mut work.hidden, &work.logits)?;
    #[cfg(crime)]
    host::square(step.on, &mut work.attn, before)?;
    Ok(())
}
