//! row: r
//! error: E0451
//! says: field `ticket` of struct `Written` is private
//! The proof of one request used for another one: it is borrowed from its request, and nothing changes that.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (done, settled) = written(&mut engine, &mut stream)?;
    let fresh = ticket(&engine);
    let proof = done.written(&settled)?;
    #[cfg(crime)]
    let proof = Written { ticket: &fresh, ..proof };
    assert_eq!(proof.tokens(), Tokens::new(1));
    drop(fresh);
    Ok(())
}
