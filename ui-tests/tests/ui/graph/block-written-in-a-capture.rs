//! row: d
//! error: E0277
//! says: this cannot be done inside a graph capture or a load
//! The same for writing.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut ticket = ticket(&engine);
    engine.record(&mut stream, |step| -> Result<(), Error> {
        let Step { buffers: LlamaView { work, kv, table, .. }, on, .. } = step;
        #[cfg(crime)]
        host::square(on, &mut kv.block_mut(&mut ticket, 0)?, &work.hidden)?;
        #[cfg(not(crime))]
        host::write_kv(on, &mut kv.slab_mut(), table.ids(), &work.hidden)?;
        Ok(())
    })?;
    let _ = &mut ticket;
    Ok(())
}
