//! row: d
//! error: E0277
//! says: a kernel cannot read `&[f32; 64]`
//! A buffer on the stack in a graph that is replayed when the stack is gone.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let bias: [f32; 64] = [0.5; 64];
    engine.record(&mut stream, |step| -> Result<(), LaunchError> {
        let LlamaView { work, .. } = &mut step.buffers;
        #[cfg(crime)]
        host::add_assign(step.on, &mut work.hidden, &bias)?;
        #[cfg(not(crime))]
        host::add_assign(step.on, &mut work.hidden, &work.attn)?;
        Ok(())
    })?;
    let mut step = engine.step(&mut stream)?;
    step.on.write(&mut step.buffers.work.attn, &bias)?;
    Ok(())
}
