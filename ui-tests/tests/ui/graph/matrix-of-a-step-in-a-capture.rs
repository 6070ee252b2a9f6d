//! row: d
//! error: E0308
//! says: mismatched types
//! A matrix that was made in a step, in the recording of a graph.

use memtier::*;
use memtier_cuda::{
    Kernels,
    kernels::{Inputs, Matrix, project},
};

pub fn record<'c>(
    on: &Recorder<Captured<'c, Cuda>>,
    compiled: &Kernels,
    out: &mut StableSpanMut<'_, bf16, Captured<'c, Cuda>>,
    rows: StableSpan<'_, bf16, Captured<'c, Cuda>>,
    of_the_step: Matrix<'_, Eager<Cuda>>,
    of_the_capture: Matrix<'_, Captured<'c, Cuda>>,
) -> Result<(), LaunchError> {
    #[cfg(crime)]
    let of_the_capture = of_the_step;
    #[cfg(not(crime))]
    let _ = of_the_step;
    project(on, compiled, out, &[of_the_capture], Inputs::plain(rows), 1)
}

pub fn main() {}
