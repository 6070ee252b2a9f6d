//! row: f
//! error: E0505
//! says: cannot move out of `engine` because it is borrowed
//! A staged tensor that is still there when serving starts.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = carved();
    let mut tensor = engine.load(&mut stream)?.staging.take::<f32>(64)?;
    #[cfg(crime)]
    let _engine = engine.serve()?;
    tensor.fill(1.0);
    Ok(())
}
