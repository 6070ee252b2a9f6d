//! row: d
//! error: E0521
//! says: borrowed data escapes outside of closure
//! A span of one capture in another one.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (mut other, mut its_stream) = serving();
    engine.record(&mut stream, |outer: &mut Step<'_, Llama, _>| -> Result<(), Error> {
        other.record(&mut its_stream, |inner: &mut Step<'_, Llama, _>| -> Result<(), LaunchError> {
            #[cfg(crime)]
            let on = outer.on;
            #[cfg(not(crime))]
            let on = inner.on;
            host::add_assign(on, &mut inner.buffers.work.hidden, &inner.buffers.work.attn)
        })?;
        forward(outer)?;
        Ok(())
    })?;
    Ok(())
}
