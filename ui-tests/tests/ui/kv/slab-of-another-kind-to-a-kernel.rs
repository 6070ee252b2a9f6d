//! row: g
//! error: E0308
//! says: expected `&Slab<'_, GlobalKv<f32>, Eager<Host>>`, found `&Slab<'_, SwaKv<f32>, Eager<Host>>`
//! The blocks of one pool for a kernel that was written for the other.

use memtier::*;
use ui_tests::*;

pub fn blocks<P: Place<Space = Host>>(slab: &Slab<'_, GlobalKv<f32>, P>) -> u64 {
    slab.pool()
}

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let step = engine.step(&mut stream)?;
    #[cfg(crime)]
    blocks::<Eager<Host>>(&step.buffers.window.slab());
    #[cfg(not(crime))]
    blocks::<Eager<Host>>(&step.buffers.kv.slab());
    Ok(())
}
