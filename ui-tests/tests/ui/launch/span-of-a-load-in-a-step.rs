//! row: f
//! error: E0277
//! says: a span of one step, capture or load is used by a launch of another
//! A view that belongs to the load, in a forward pass.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = carved();
    let (mut other, mut its_stream) = serving();
    let load = engine.load(&mut stream)?;
    let mut step = other.step(&mut its_stream)?;
    let LlamaView { work, .. } = &mut step.buffers;
    #[cfg(crime)]
    host::add_assign(step.on, &mut work.hidden, &load.buffers.work.attn)?;
    #[cfg(not(crime))]
    host::add_assign(step.on, &mut work.hidden, &work.attn)?;
    drop(load);
    Ok(())
}
