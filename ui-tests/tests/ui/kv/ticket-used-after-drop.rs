//! row: a
//! error: E0382
//! says: borrow of moved value: `ticket`
//! Blocks of a request that has ended.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let mut ticket = ticket(&engine);
    #[cfg(crime)]
    drop(ticket);
    ticket.extend(Tokens::new(1))?;
    Ok(())
}
