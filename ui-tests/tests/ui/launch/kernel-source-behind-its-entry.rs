//! row: t
//! error: macro
//! says: the source stands first
//! The entry in the place of the source.

use memtier::*;
use memtier_cuda::kernel;

#[cfg(crime)]
#[kernel("axpy_f32", "tests/kernels/axpy.cu")]
pub unsafe fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

#[cfg(not(crime))]
#[kernel("tests/kernels/axpy.cu", "axpy_f32")]
pub unsafe fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

pub fn main() {}
