//! row: r
//! error: E0451
//! says: of struct `Settled` are private
//! A proof that nobody waited for.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let settled = engine.step::<Llama>(&mut stream)?.finish()?.wait()?;
    #[cfg(crime)]
    let settled = Settled { step: u64::MAX, ..settled };
    let _ = settled;
    Ok(())
}
