//! row: s
//! error: E0308
//! says: expected `Tokens`, found `Blocks`
//! A number of blocks where a number of tokens is meant.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let mut ticket = ticket(&engine);
    #[cfg(crime)]
    ticket.extend(Blocks::new(1))?;
    #[cfg(not(crime))]
    ticket.extend(Tokens::new(1))?;
    Ok(())
}
