//! row: g
//! error: E0277
//! says: the kernel takes `u32` elements, this span holds `BlockId<GlobalKv<f32>>`
//! Block ids where a kernel wants tokens.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { weights, work, table, .. } = &mut step.buffers;
    #[cfg(crime)]
    host::embed(step.on, &mut work.hidden, weights.embed, table.ids())?;
    #[cfg(not(crime))]
    host::embed(step.on, &mut work.hidden, weights.embed, &work.tokens)?;
    let _ = table;
    Ok(())
}
