//! row: m
//! error: E0502
//! says: cannot borrow `ticket` as mutable
//! Copy-on-write from a request into the same request.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (mut ticket, mut other) = (ticket(&engine), ticket(&engine));
    let mut step = engine.step(&mut stream)?;
    #[cfg(crime)]
    let (from, mut to) = step.buffers.kv.copy_pair((&ticket, 0), (&mut ticket, 0))?;
    #[cfg(not(crime))]
    let (from, mut to) = step.buffers.kv.copy_pair((&ticket, 0), (&mut other, 0))?;
    step.on.copy::<f32>(&mut to, from)?;
    let _ = (&mut ticket, &mut other);
    Ok(())
}
