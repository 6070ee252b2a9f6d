//! row: r
//! error: E0382
//! says: borrow of moved value: `pinned`
//! A pinned buffer is looked at while the device writes into it.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn look(
    engine: &mut Engine<Serving<Llama>>,
    stream: &mut Stream<Host>,
    mut pinned: Pinned<f32>,
) -> Result<f32, Error> {
    let step = engine.step(stream)?;
    let late = step.on.read_back(&step.buffers.work.logits, pinned)?;
    let settled = step.finish()?.wait()?;
    #[cfg(not(crime))]
    let pinned = late.take(&settled)?;
    Ok(pinned[0])
}

pub fn main() {}
