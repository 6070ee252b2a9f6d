//! row: d
//! error: E0277
//! says: this cannot be done inside a graph capture or a load
//! The block of one request baked into a graph that runs for all.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let ticket = ticket(&engine);
    engine.record(&mut stream, |step| -> Result<(), Error> {
        let Step { buffers: LlamaView { work, kv, table, .. }, on, .. } = step;
        #[cfg(crime)]
        host::square(on, &mut work.attn, kv.block(&ticket, 0)?)?;
        #[cfg(not(crime))]
        host::attend(on, &mut work.attn, &work.hidden, &kv.slab(), table.ids())?;
        Ok(())
    })?;
    drop(ticket);
    Ok(())
}
