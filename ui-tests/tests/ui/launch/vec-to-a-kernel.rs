//! row: k
//! error: E0277
//! says: a kernel cannot read `&Vec<{float}>`
//! The heap's memory as a kernel's input.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { work, .. } = &mut step.buffers;
    let values = vec![0.0; 64];
    #[cfg(crime)]
    let attn = &values;
    #[cfg(not(crime))]
    let attn = {
        step.on.write(&mut work.attn, &values)?;
        &work.attn
    };
    host::add_assign(step.on, &mut work.hidden, attn)?;
    Ok(())
}
