//! row: h
//! error: E0277
//! says: this cannot be done inside a graph capture or a load
//! Admitting a request while recording.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    #[cfg(not(crime))]
    let _ticket = ticket(&engine);
    engine.record(&mut stream, |step| -> Result<(), Error> {
        #[cfg(crime)]
        step.buffers.kv.handle().open(Tokens::new(4)).extend(Tokens::new(1))?;
        Ok(forward(step)?)
    })?;
    Ok(())
}
