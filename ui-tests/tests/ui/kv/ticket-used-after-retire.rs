//! row: a
//! error: E0382
//! says: borrow of moved value: `ticket`
//! Blocks of a request that was retired.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (mut ticket, settled) = written(&mut engine, &mut stream)?;
    #[cfg(crime)]
    ticket.retire(&settled)?;
    ticket.extend(Tokens::new(1))?;
    #[cfg(not(crime))]
    ticket.retire(&settled)?;
    Ok(())
}
