//! row: r
//! error: E0382
//! says: use of moved value: `proof`
//! A proof is used up by what it proves.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (ticket, settled) = written(&mut engine, &mut stream)?;
    let proof = ticket.written(&settled)?;
    let _prefix = proof.publish();
    #[cfg(not(crime))]
    let proof = ticket.written(&settled)?;
    let _again = proof.publish();
    Ok(())
}
