//! row: b
//! error: E0277
//! says: `Gone` stands where `ModelResident` storage was
//! Keeping weights of the model that has ended.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let (mut engine, kept) = engine.drain()?.end_model();
    #[cfg(crime)]
    let _line = engine.keep(kept.weights, &DIMS);
    #[cfg(not(crime))]
    let _line = engine.keep(kept.work, &DIMS);
    Ok(())
}
