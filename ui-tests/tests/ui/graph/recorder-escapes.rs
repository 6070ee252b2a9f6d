//! row: h
//! error: E0521
//! says: borrowed data escapes outside of closure
//! Writing down after the capture was closed.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut escaped = None;
    engine.record(&mut stream, |step: &mut Step<'_, Llama, _>| -> Result<(), Error> {
        #[cfg(crime)]
        (escaped = Some(step.on));
        #[cfg(not(crime))]
        (escaped = Some(step.buffers.work.attn.len()));
        Ok(())
    })?;
    let _ = escaped;
    Ok(())
}
