//! row: c
//! error: E0521
//! says: borrowed data escapes outside of closure
//! Scratch of a capture, kept when the capture is over.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut escaped = None;
    engine.record(&mut stream, |step: &mut Step<'_, Llama, _>| -> Result<(), Error> {
        let scratch = step.scratch.take::<f32>(64)?;
        #[cfg(crime)]
        (escaped = Some(scratch));
        #[cfg(not(crime))]
        (escaped = Some(scratch.len()));
        Ok(())
    })?;
    let _ = escaped;
    Ok(())
}
