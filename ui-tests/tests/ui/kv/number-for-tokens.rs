//! row: s
//! error: E0308
//! says: expected `Tokens`, found integer
//! A bare number: of what?

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let mut ticket = ticket(&engine);
    #[cfg(crime)]
    ticket.extend(1)?;
    #[cfg(not(crime))]
    ticket.extend(Tokens::new(1))?;
    Ok(())
}
