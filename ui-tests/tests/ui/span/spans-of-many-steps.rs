//! row: d
//! error: E0499
//! says: cannot borrow `engine` as mutable more than once
//! Spans collected over the steps of a loop.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut kept = Vec::new();
    for _ in 0..2 {
        let step = engine.step(&mut stream)?;
        #[cfg(crime)]
        kept.push(step.buffers.weights.embed);
        #[cfg(not(crime))]
        kept.push(step.buffers.weights.embed.len());
    }
    assert_eq!(kept.len(), 2);
    Ok(())
}
