//! row: l
//! error: E0277
//! says: `Host` memory where `Cuda` memory is needed
//! A host buffer for a wrapper that was generated from a CUDA kernel's declaration.

use memtier::*;
use memtier_cuda::{LaunchGrid, LoadedKernel, kernel};
use ui_tests::*;

#[kernel("tests/kernels/axpy.cu", "axpy_f32", unsafe(requires(y.len() == x.len(), n as usize <= x.len())))]
pub fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u32);

pub fn launch(
    gpu: &mut Step<'_, Llama<Cuda>, Eager<Cuda>>,
    cpu: &mut Step<'_, Llama, Eager<Host>>,
    kernel: &LoadedKernel<axpy>,
) -> Result<(), LaunchError> {
    let (grid, work) = (LaunchGrid::over(64, 128), &mut gpu.buffers.work);
    #[cfg(crime)]
    return axpy(gpu.on, kernel, grid, &mut work.hidden, &cpu.buffers.work.attn, 2.0, 64);
    #[cfg(not(crime))]
    return {
        let _ = cpu;
        axpy(gpu.on, kernel, grid, &mut work.hidden, &work.attn, 2.0, 64)
    };
}

pub fn main() {}
