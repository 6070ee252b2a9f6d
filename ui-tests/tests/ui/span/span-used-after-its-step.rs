//! row: d
//! error: E0502
//! says: cannot borrow `engine` as immutable
//! A span of one step used in another: what happened in between may have moved on.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let step = engine.step(&mut stream)?;
    let embed = step.buffers.weights.embed;
    let on = step.on;
    drop(step);
    #[cfg(crime)]
    let _pool = engine.bundle();
    let _ = on.read(embed, &mut [0.0; 8]);
    #[cfg(not(crime))]
    let _pool = engine.bundle();
    Ok(())
}
