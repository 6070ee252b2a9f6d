//! row: t
//! error: macro
//! says: no signature says how far a kernel reads and writes
//! A safe launch of a CUDA kernel, for which nobody says how far it reads.

use memtier::*;
use memtier_cuda::kernel;

#[cfg(crime)]
#[kernel("tests/kernels/axpy.cu", "axpy_f32")]
pub fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

#[cfg(not(crime))]
#[kernel("tests/kernels/axpy.cu", "axpy_f32", unsafe(requires(y.len() == x.len(), n as usize <= x.len())))]
pub fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

pub fn main() {}
