//! row: p
//! error: E0277
//! says: serving cannot start from phase `Loading`
//! Serving what nobody has checked.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    #[cfg(crime)]
    let engine = loading();
    #[cfg(not(crime))]
    let (engine, _stream) = carved();
    engine.serve::<Llama>()?;
    Ok(())
}
