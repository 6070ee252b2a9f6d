//! row: m
//! error: E0502
//! says: cannot borrow `work.hidden` as immutable
//! A kernel that overwrites what it is reading.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { weights, work, .. } = &mut step.buffers;
    let query = weights.layers.at(0).ok_or("no layer")?.query;
    #[cfg(crime)]
    host::matmul(step.on, 8, &mut work.hidden, query, &work.hidden)?;
    #[cfg(not(crime))]
    host::matmul(step.on, 8, &mut work.attn, query, &work.hidden)?;
    Ok(())
}
