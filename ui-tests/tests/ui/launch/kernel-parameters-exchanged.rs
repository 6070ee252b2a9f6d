//! row: t
//! error: macro
//! says: put them in the source's order
//! Two parameters of one type in the wrong order.

use memtier::*;
use memtier_cuda::kernel;

#[cfg(crime)]
#[kernel("tests/kernels/axpy.cu", "axpy_f32")]
pub unsafe fn axpy(y: Out<f32>, x: In<f32>, n: f32, factor: u32);

#[cfg(not(crime))]
#[kernel("tests/kernels/axpy.cu", "axpy_f32")]
pub unsafe fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

pub fn main() {}
