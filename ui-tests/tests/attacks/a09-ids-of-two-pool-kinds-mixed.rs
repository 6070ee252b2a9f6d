//! row: g
//! error: E0308
//! says: expected `&Ticket<GlobalKv<f32>>`, found `&Ticket<SwaKv<f32>>`
//! A sliding-window request in the page table of the global pool: another request's KV would be overwritten.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (victim, swa) = (ticket(&engine), window_ticket(&engine));
    let mut step = engine.step(&mut stream)?;
    let Step { buffers: LlamaView { work, kv, window, table, recent, .. }, on, .. } = &mut step;
    on.write(&mut work.hidden, &[9.0; 64])?;
    #[cfg(crime)]
    {
        table.set(on, 0, &swa)?;
        host::write_kv(on, &mut kv.slab_mut(), table.ids(), &work.hidden)?;
    }
    #[cfg(not(crime))]
    {
        recent.set(on, 0, &swa)?;
        host::write_kv(on, &mut window.slab_mut(), recent.ids(), &work.hidden)?;
    }
    let mut values = [0.0; 8];
    on.read(kv.block(&victim, 0)?, &mut values)?;
    assert_eq!(values, [0.0; 8]);
    let _ = (window, table, recent);
    Ok(())
}
