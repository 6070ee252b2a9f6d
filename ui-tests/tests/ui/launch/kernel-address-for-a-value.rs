//! row: t
//! error: macro
//! says: the kernel takes a value
//! A span where the CUDA kernel takes a number.

use memtier::*;
use memtier_cuda::kernel;

#[cfg(crime)]
#[kernel("tests/kernels/axpy.cu", "axpy_f32")]
pub unsafe fn axpy(y: Out<f32>, x: In<f32>, factor: In<f32>, n: u32);

#[cfg(not(crime))]
#[kernel("tests/kernels/axpy.cu", "axpy_f32")]
pub unsafe fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

pub fn main() {}
