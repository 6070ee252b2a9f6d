//! row: k
//! error: E0277
//! says: a kernel cannot read `DeviceSpan<'_, f32>`
//! The same for an argument among many.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { work, kv, table, .. } = &mut step.buffers;
    let query = work.hidden.read();
    #[cfg(crime)]
    let query = query.widen();
    host::attend(step.on, &mut work.attn, query, &kv.slab(), table.ids())?;
    Ok(())
}
