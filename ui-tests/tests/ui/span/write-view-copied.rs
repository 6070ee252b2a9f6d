//! row: m
//! error: E0507
//! says: cannot move out of `*hidden`
//! A second write view of one buffer.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let hidden = &mut step.buffers.work.hidden;
    #[cfg(crime)]
    let twin = *hidden;
    #[cfg(not(crime))]
    let twin = hidden.reborrow();
    assert_eq!(twin.len(), 64);
    Ok(())
}
