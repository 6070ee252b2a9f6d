//! row: t
//! error: macro
//! says: the driver would refuse every launch; at most 128
//! Larger blocks than the CUDA kernel was compiled for.

use memtier::*;
use memtier_cuda::kernel;

#[cfg(crime)]
#[kernel("tests/kernels/axpy.cu", "axpy_f32", threads = 256)]
pub unsafe fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

#[cfg(not(crime))]
#[kernel("tests/kernels/axpy.cu", "axpy_f32")]
pub unsafe fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

pub fn main() {}
