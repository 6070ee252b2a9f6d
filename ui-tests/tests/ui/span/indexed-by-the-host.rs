//! row: k
//! error: E0277
//! says: the host does not look into a span
//! An element of a span looked at like that of a slice.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    step.on.write(&mut step.buffers.work.logits.range(0..1).ok_or("a logit")?, &[1.0])?;
    #[cfg(crime)]
    let logit = step.buffers.work.logits[0];
    #[cfg(not(crime))]
    let logit = {
        let mut logits = [0.0; 1];
        step.on.read::<f32>(step.buffers.work.logits.read().range(0..1).ok_or("a logit")?, &mut logits)?;
        logits[0]
    };
    assert_eq!(logit, 1.0);
    Ok(())
}
