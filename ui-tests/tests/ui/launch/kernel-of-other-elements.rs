//! row: t
//! error: macro
//! says: the elements are `f32` there; write `In<f32>`
//! Elements of another type than the CUDA kernel's.

use memtier::*;
use memtier_cuda::kernel;

#[cfg(crime)]
#[kernel("tests/kernels/axpy.cu", "axpy_f32")]
pub unsafe fn axpy(y: Out<f32>, x: In<bf16>, factor: f32, n: u32);

#[cfg(not(crime))]
#[kernel("tests/kernels/axpy.cu", "axpy_f32")]
pub unsafe fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

pub fn main() {}
