//! row: s
//! error: E0368
//! says: binary assignment operation `+=` cannot be applied to type `Tokens`
//! A count that wraps around when it is added to.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let mut done = Tokens::new(3);
    #[cfg(crime)]
    (done += Tokens::new(1));
    #[cfg(not(crime))]
    (done = done.plus(Tokens::new(1))?);
    assert_eq!(done, Tokens::new(4));
    Ok(())
}
