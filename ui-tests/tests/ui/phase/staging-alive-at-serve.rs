//! row: f
//! error: E0505
//! says: cannot move out of `engine` because it is borrowed
//! Load-time staging that is still there when serving starts.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = carved();
    #[cfg(crime)]
    let staging = engine.load(&mut stream)?.staging;
    #[cfg(not(crime))]
    engine.load(&mut stream)?;
    let _engine = engine.serve()?;
    Ok(())
}
