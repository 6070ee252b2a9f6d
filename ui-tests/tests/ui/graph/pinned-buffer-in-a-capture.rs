//! row: h
//! error: E0499
//! says: cannot borrow `engine` as mutable more than once
//! Page-locking memory while recording: an allocation would break the capture.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let (lines, stream) = (declare::<Host>(&mut engine), engine.declare::<Stream<Host>>(STREAM));
    let pinned: Line<Pinned<f32>> = engine.declare(PinnedSpec { len: 64 });
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    #[cfg(not(crime))]
    let _pinned = engine.pin(pinned)?;
    engine.record(&mut stream, |step: &mut Step<'_, Llama, _>| -> Result<(), Error> {
        #[cfg(crime)]
        let _pinned = engine.pin(pinned)?;
        step.scratch.take::<f32>(64)?;
        Ok(())
    })?;
    Ok(())
}
