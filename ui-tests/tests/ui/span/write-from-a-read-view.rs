//! row: m
//! error: E0599
//! says: no method named `reborrow` found
//! Write access made from read access.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let hidden = &mut step.buffers.work.hidden;
    #[cfg(crime)]
    let again = hidden.read().reborrow();
    #[cfg(not(crime))]
    let again = hidden.reborrow();
    assert_eq!(again.len(), 64);
    Ok(())
}
