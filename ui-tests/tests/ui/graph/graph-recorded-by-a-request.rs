//! row: h
//! error: E0599
//! says: no method named `record` found
//! Recording from where only the pool is known.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    #[cfg(crime)]
    engine.bundle().kv.handle().record(&mut stream, |_: &mut ()| Ok::<(), LaunchError>(()));
    #[cfg(not(crime))]
    engine.record::<Llama, LaunchError, _>(&mut stream, |_| Ok(()))?;
    Ok(())
}
