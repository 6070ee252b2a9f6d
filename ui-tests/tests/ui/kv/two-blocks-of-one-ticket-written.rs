//! row: m
//! error: E0499
//! says: cannot borrow `ticket` as mutable more than once
//! Two write views of one request's blocks, which may be the same block.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (mut ticket, mut other) = (ticket(&engine), ticket(&engine));
    let mut step = engine.step(&mut stream)?;
    #[cfg(crime)]
    let blocks = step.buffers.kv.blocks_mut([(&mut ticket, 0), (&mut ticket, 0)])?;
    #[cfg(not(crime))]
    let blocks = step.buffers.kv.blocks_mut([(&mut ticket, 0), (&mut other, 0)])?;
    assert_eq!(blocks.len(), 2);
    Ok(())
}
