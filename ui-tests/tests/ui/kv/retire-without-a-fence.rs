//! row: r
//! error: E0061
//! says: this method takes 1 argument but 0 arguments were supplied
//! Freeing blocks at once, without any proof.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (ticket, settled) = written(&mut engine, &mut stream)?;
    #[cfg(crime)]
    ticket.retire()?;
    #[cfg(not(crime))]
    ticket.retire(&settled)?;
    Ok(())
}
