//! row: d
//! error: E0521
//! says: borrowed data escapes outside of closure
//! A span of a capture, kept when the capture is over.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut escaped = None;
    engine.record(&mut stream, |step: &mut Step<'_, Llama, _>| -> Result<(), Error> {
        let attn = step.buffers.work.attn.read();
        #[cfg(crime)]
        (escaped = Some(attn));
        #[cfg(not(crime))]
        (escaped = Some(attn.len()));
        Ok(())
    })?;
    let _ = escaped;
    Ok(())
}
