//! row: g
//! error: E0308
//! says: expected `&Ticket<GlobalKv<f32>>`, found `&Ticket<SwaKv<f32>>`
//! A request of one pool in the page table of the other.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (global, window) = (ticket(&engine), window_ticket(&engine));
    let mut step = engine.step(&mut stream)?;
    #[cfg(crime)]
    step.buffers.table.set(step.on, 0, &window)?;
    #[cfg(not(crime))]
    step.buffers.table.set(step.on, 0, &global)?;
    drop((global, window));
    Ok(())
}
