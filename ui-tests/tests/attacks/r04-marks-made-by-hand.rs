//! row: r
//! error: E0599
//! says: no method named `queue` found
//! The stream's own marks, set as if everything were done: marks are the engine's.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving_late();
    let step = engine.step::<Llama>(&mut stream)?;
    #[cfg(crime)]
    step.on.queue().wait(u64::MAX)?;
    step.finish()?.wait()?;
    Ok(())
}
