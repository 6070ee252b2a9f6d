//! row: b
//! error: E0505
//! says: cannot move out of `engine` because it is borrowed
//! An address of weights, used after their model has ended.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let step = engine.step(&mut stream)?;
    let (on, embed) = (step.on, step.buffers.weights.embed);
    drop(step);
    #[cfg(crime)]
    let (_engine, _kept) = engine.drain()?.end_model();
    on.read(embed, &mut [0.0; 8]).ok();
    #[cfg(not(crime))]
    let (_engine, _kept) = engine.drain()?.end_model();
    Ok(())
}
