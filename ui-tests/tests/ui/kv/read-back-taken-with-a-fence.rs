//! row: r
//! error: E0308
//! says: mismatched types
//! A read-back is opened with a fence that nobody waited for.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn look(
    engine: &mut Engine<Serving<Llama>>,
    stream: &mut Stream<Host>,
    pinned: Pinned<f32>,
) -> Result<f32, Error> {
    let step = engine.step(stream)?;
    let late = step.on.read_back(&step.buffers.work.logits, pinned)?;
    let fence = step.finish()?;
    #[cfg(crime)]
    let pinned = late.take(&fence)?;
    #[cfg(not(crime))]
    let pinned = late.take(&fence.wait()?)?;
    Ok(pinned[0])
}

pub fn main() {}
