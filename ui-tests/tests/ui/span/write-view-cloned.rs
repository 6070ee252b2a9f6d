//! row: m
//! error: E0599
//! says: no method named `clone` found
//! The same with a method.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    #[cfg(crime)]
    let twin = step.buffers.work.hidden.clone();
    #[cfg(not(crime))]
    let twin = step.buffers.work.hidden.read().clone();
    assert_eq!(twin.len(), 64);
    Ok(())
}
