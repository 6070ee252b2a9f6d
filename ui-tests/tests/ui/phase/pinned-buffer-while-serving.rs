//! row: i
//! error: E0277
//! says: memory cannot be acquired in phase `Serving<Llama>`
//! Page-locking host memory while requests run.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let lines = declare::<Host>(&mut engine);
    let pinned: Line<Pinned<f32>> = engine.declare(PinnedSpec { len: 64 });
    let engine = engine.plan(limits::<Host>())?.carve(lines)?;
    #[cfg(crime)]
    let engine = engine.serve()?;
    let mut engine = engine;
    let _pinned = engine.pin(pinned)?;
    Ok(())
}
