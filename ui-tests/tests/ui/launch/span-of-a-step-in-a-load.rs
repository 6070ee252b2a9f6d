//! row: f
//! error: E0277
//! says: a span of one step, capture or load is used by a launch of another
//! A view of a forward pass, in a load.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = carved();
    let (mut other, mut its_stream) = serving();
    let mut load = engine.load(&mut stream)?;
    let step = other.step(&mut its_stream)?;
    let work = &mut load.buffers.work;
    #[cfg(crime)]
    host::add_assign(load.on, &mut work.hidden, &step.buffers.work.attn)?;
    #[cfg(not(crime))]
    host::add_assign(load.on, &mut work.hidden, &work.attn)?;
    drop(step);
    Ok(())
}
