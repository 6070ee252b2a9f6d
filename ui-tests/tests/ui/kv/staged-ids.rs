//! row: g
//! error: E0308
//! says: expected `&mut StableSpanMut<'_, BlockId<...>, _>`, found `&mut StableSpan<'_, BlockId<...>, ...>`
//! A page table loaded from a file.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = carved();
    let mut load = engine.load(&mut stream)?;
    #[cfg(crime)]
    load.staging.take::<KvId>(32)?.upload(load.on, &mut load.buffers.table.ids())?;
    #[cfg(not(crime))]
    load.staging.take::<u32>(8)?.upload(load.on, &mut load.buffers.work.tokens)?;
    Ok(())
}
