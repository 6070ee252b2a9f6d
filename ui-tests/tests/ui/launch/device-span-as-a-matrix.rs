//! row: k
//! error: E0277
//! says: a product cannot read `DeviceSpan<'_, bf16>`
//! Weights whose address may change, as the matrix of a product.

use memtier::*;
use memtier_cuda::kernels::Matrix;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving_cuda();
    let mut step = engine.step(&mut stream)?;
    let weights = step.scratch.take::<bf16>(64)?;
    let weights = weights.read();
    #[cfg(crime)]
    let weights = weights.widen();
    let _matrix: Matrix<'_, Eager<Cuda>> = Matrix::new(weights, 8, 8)?;
    Ok(())
}
