//! row: r
//! error: E0451
//! says: of struct `Fence` are private
//! A fence behind launches that never were.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let fence = engine.step::<Llama>(&mut stream)?.finish()?;
    #[cfg(crime)]
    let fence = Fence { step: 0, ..fence };
    fence.wait()?;
    Ok(())
}
