//! row: g
//! error: E0308
//! says: expected `&Ticket<GlobalKv<f32>>`, found `&Ticket<SwaKv<f32>>`
//! A request of the sliding-window pool in the global pool: the same ids, other blocks.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    #[cfg(crime)]
    let ticket = window_ticket(&engine);
    #[cfg(not(crime))]
    let ticket = ticket(&engine);
    let step = engine.step(&mut stream)?;
    let _block = step.buffers.kv.block(&ticket, 0)?;
    Ok(())
}
