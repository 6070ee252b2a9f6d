//! row: k
//! error: E0277
//! says: a kernel cannot write `StableSpan<'_, f32, Eager<Host>>`
//! A kernel that writes weights while serving: they are read-only from `serve` on.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { weights, work, .. } = &mut step.buffers;
    #[cfg(crime)]
    host::add_assign(step.on, &mut weights.embed, &work.logits)?;
    #[cfg(not(crime))]
    host::add_assign(step.on, &mut work.logits, weights.embed)?;
    Ok(())
}
