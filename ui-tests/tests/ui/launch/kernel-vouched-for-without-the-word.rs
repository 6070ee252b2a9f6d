//! row: t
//! error: macro
//! says: who writes `requires` vouches for the launch
//! Conditions without the word that says who vouches.

use memtier::*;
use memtier_cuda::kernel;

#[cfg(crime)]
#[kernel(
    "tests/kernels/axpy.cu",
    "axpy_f32",
    requires(x.len() == y.len(), y.len() as u64 == n as u64)
)]
pub fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

#[cfg(not(crime))]
#[kernel("tests/kernels/axpy.cu", "axpy_f32", unsafe(requires(x.len() == y.len(), y.len() as u64 == n as u64)))]
pub fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

pub fn main() {}
