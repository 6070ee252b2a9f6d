//! row: p
//! error: E0277
//! says: memory cannot be acquired in phase `Loading`
//! Opening a stream before the plan gave it scratch.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let stream: Line<Stream<Host>> = engine.declare(STREAM);
    #[cfg(not(crime))]
    let mut engine = engine.plan(limits::<Host>())?;
    let _stream = engine.open_stream(stream)?;
    Ok(())
}
