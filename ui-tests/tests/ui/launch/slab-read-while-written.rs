//! row: m
//! error: E0502
//! says: cannot borrow `*kv` as immutable
//! One launch that writes a pool's blocks and reads them through another argument.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { kv, work, .. } = &mut step.buffers;
    #[cfg(crime)]
    let arguments = (&mut kv.slab_mut(), &kv.slab());
    #[cfg(not(crime))]
    let arguments = (&mut kv.slab_mut(), input::<f32, _, _>(&work.hidden));
    step.on.host_op(arguments, |(slab, _)| {
        slab.units.fill(0.0);
        Ok(())
    })?;
    Ok(())
}
