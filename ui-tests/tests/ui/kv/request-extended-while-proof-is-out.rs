//! row: r
//! error: E0502
//! says: cannot borrow `ticket` as mutable
//! New tokens between the proof and its use.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (mut ticket, settled) = written(&mut engine, &mut stream)?;
    let proof = ticket.written(&settled)?;
    #[cfg(crime)]
    ticket.extend(Tokens::new(1))?;
    let _prefix = proof.publish();
    Ok(())
}
