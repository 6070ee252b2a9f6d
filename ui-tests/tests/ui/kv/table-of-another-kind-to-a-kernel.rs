//! row: g
//! error: E0277
//! says: the kernel takes `BlockId<GlobalKv<f32>>` elements
//! The page table of one pool for a kernel that reads the other pool's blocks.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { work, kv, table, recent, .. } = &mut step.buffers;
    #[cfg(crime)]
    let ids = recent.ids();
    #[cfg(not(crime))]
    let ids = table.ids();
    host::attend(step.on, &mut work.attn, &work.hidden, &kv.slab(), ids)?;
    let _ = (table, recent);
    Ok(())
}
