//! row: m
//! error: E0502
//! says: cannot borrow `work.hidden` as immutable
//! Aliasing that would be baked.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    engine.record(&mut stream, |step| -> Result<(), Error> {
        let LlamaView { weights, work, .. } = &mut step.buffers;
        let query = weights.layers.at(0).ok_or("no layer")?.query;
        #[cfg(crime)]
        host::matmul(step.on, 8, &mut work.hidden, query, &work.hidden)?;
        #[cfg(not(crime))]
        host::matmul(step.on, 8, &mut work.attn, query, &work.hidden)?;
        Ok(())
    })?;
    Ok(())
}
