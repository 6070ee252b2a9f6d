//! row: r
//! error: E0277
//! says: a request's tokens are published with proof that they are in memory
//! Publishing tokens that may not be in memory yet.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (ticket, settled) = written(&mut engine, &mut stream)?;
    #[cfg(crime)]
    let _prefix = ticket.publish();
    #[cfg(not(crime))]
    let _prefix = ticket.written(&settled)?.publish();
    Ok(())
}
