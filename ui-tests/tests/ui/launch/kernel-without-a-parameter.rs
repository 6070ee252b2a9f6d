//! row: t
//! error: macro
//! says: nothing behind `factor` here, `unsigned n` in tests/kernels/axpy.cu line 5
//! A launch that passes fewer arguments than the CUDA kernel takes.

use memtier::*;
use memtier_cuda::kernel;

#[cfg(crime)]
#[kernel("tests/kernels/axpy.cu", "axpy_f32")]
pub unsafe fn axpy(y: Out<f32>, x: In<f32>, factor: f32);

#[cfg(not(crime))]
#[kernel("tests/kernels/axpy.cu", "axpy_f32")]
pub unsafe fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

pub fn main() {}
