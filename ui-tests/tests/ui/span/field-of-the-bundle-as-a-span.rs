//! row: n
//! error: E0616
//! says: field `hidden` of struct `DecodeWorkspace` is private
//! An address without a step that orders its use.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    #[cfg(crime)]
    let hidden = &engine.bundle().work.hidden;
    #[cfg(not(crime))]
    let step = engine.step(&mut stream)?;
    #[cfg(not(crime))]
    let hidden = &step.buffers.work.hidden;
    assert_eq!(hidden.len(), 64);
    Ok(())
}
