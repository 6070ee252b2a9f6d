//! row: k
//! error: E0277
//! says: a product cannot read `&StableSpanMut<'_, f32, Eager<Cuda>>`
//! Rows of f32 for a product of bf16.

use memtier::*;
use memtier_cuda::kernels::Inputs;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving_cuda();
    let mut step = engine.step(&mut stream)?;
    let rows = step.scratch.take::<bf16>(64)?;
    #[cfg(crime)]
    let rows = (rows, &step.buffers.work.hidden).1;
    #[cfg(not(crime))]
    let rows = &rows;
    let _inputs: Inputs<'_, Eager<Cuda>> = Inputs::plain(rows);
    Ok(())
}
