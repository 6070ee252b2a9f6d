//! row: d
//! error: E0277
//! says: this cannot be done inside a graph capture or a load
//! A read-back in a capture: every replay would write into a buffer that one step was given.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn look(
    engine: &mut Engine<Serving<Llama>>,
    stream: &mut Stream<Host>,
    pinned: Pinned<f32>,
) -> Result<(), Error> {
    #[cfg(crime)]
    engine.record(stream, |step| {
        let _ = step.on.read_back(&step.buffers.work.logits, pinned);
        Ok::<_, LaunchError>(())
    })?;
    #[cfg(not(crime))]
    let step = engine.step(stream)?;
    #[cfg(not(crime))]
    let _ = step.on.read_back(&step.buffers.work.logits, pinned)?;
    Ok(())
}

pub fn main() {}
