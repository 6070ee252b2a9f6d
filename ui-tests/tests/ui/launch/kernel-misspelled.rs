//! row: t
//! error: macro
//! says: did you mean `axpy_f32`?
//! An entry that the CUDA source does not have.

use memtier::*;
use memtier_cuda::kernel;

#[cfg(crime)]
#[kernel("tests/kernels/axpy.cu", "axpy_f23")]
pub unsafe fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

#[cfg(not(crime))]
#[kernel("tests/kernels/axpy.cu", "axpy_f32")]
pub unsafe fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

pub fn main() {}
