//! row: g
//! error: E0277
//! says: the kernel takes `BlockId<GlobalKv<f32>>` elements, this span holds `u32`
//! A buffer of numbers where a kernel wants block ids.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { work, kv, table, .. } = &mut step.buffers;
    #[cfg(crime)]
    host::attend(step.on, &mut work.attn, &work.hidden, &kv.slab(), &work.tokens)?;
    #[cfg(not(crime))]
    host::attend(step.on, &mut work.attn, &work.hidden, &kv.slab(), table.ids())?;
    let _ = table;
    Ok(())
}
