//! row: t
//! error: macro
//! says: callers pass spans, the declaration names what is in them: write `Out<f32>`
//! A launch declared with what callers pass.

use memtier::*;
use memtier_cuda::kernel;

#[cfg(crime)]
#[kernel("tests/kernels/axpy.cu", "axpy_f32")]
pub unsafe fn axpy(y: &mut StableSpanMut<'_, f32, P>, x: impl Input<f32, P>, factor: f32, n: u32);

#[cfg(not(crime))]
#[kernel("tests/kernels/axpy.cu", "axpy_f32")]
pub unsafe fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

pub fn main() {}
