//! row: o
//! error: E0599
//! says: no method named `clone` found
//! Published blocks with referents that nobody counted.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (ticket, settled) = written(&mut engine, &mut stream)?;
    let prefix = ticket.written(&settled)?.publish();
    #[cfg(crime)]
    let again = prefix.clone();
    #[cfg(not(crime))]
    let again = prefix.open(Tokens::new(4));
    assert_eq!(again.tokens(), Tokens::new(1));
    Ok(())
}
