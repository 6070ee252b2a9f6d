//! row: s
//! error: E0277
//! says: `Blocks` is calculated with methods, not with operators
//! A sum that nobody checks.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let held = [Blocks::new(3), Blocks::new(1)];
    #[cfg(crime)]
    let all: Blocks = held.into_iter().sum();
    #[cfg(not(crime))]
    let all = Blocks::sum(held)?;
    assert_eq!(all, Blocks::new(4));
    Ok(())
}
