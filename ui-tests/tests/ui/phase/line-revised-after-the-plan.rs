//! row: q
//! error: E0277
//! says: nothing can be declared or planned in phase `Planning`
//! Making a line larger that the plan has priced already.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let mut stream: Line<Stream<Host>> = engine.declare(STREAM);
    let larger = StreamSpec { scratch: Bytes::kib(64) };
    #[cfg(not(crime))]
    engine.revise(&mut stream, larger).map_err(|_| "the line is this engine's")?;
    let mut engine = engine.plan(limits::<Host>())?;
    #[cfg(crime)]
    engine.revise(&mut stream, larger).map_err(|_| "the line is this engine's")?;
    engine.open_stream(stream)?;
    Ok(())
}
