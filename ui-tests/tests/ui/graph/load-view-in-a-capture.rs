//! row: d
//! error: E0277
//! says: this buffer is not owned by the bundle being captured
//! A view of a load baked into a graph.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (mut other, mut its_stream) = carved();
    let load = other.load(&mut its_stream)?;
    engine.record(&mut stream, |step| -> Result<(), LaunchError> {
        let LlamaView { work, .. } = &mut step.buffers;
        #[cfg(crime)]
        host::add_assign(step.on, &mut work.hidden, &load.buffers.work.attn)?;
        #[cfg(not(crime))]
        host::add_assign(step.on, &mut work.hidden, &work.attn)?;
        Ok(())
    })?;
    drop(load);
    Ok(())
}
