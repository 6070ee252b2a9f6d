//! row: r
//! error: E0505
//! says: cannot move out of `ticket` because it is borrowed
//! Publishing the blocks of a request that has ended.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (ticket, settled) = written(&mut engine, &mut stream)?;
    let proof = ticket.written(&settled)?;
    #[cfg(crime)]
    drop(ticket);
    let _prefix = proof.publish();
    Ok(())
}
