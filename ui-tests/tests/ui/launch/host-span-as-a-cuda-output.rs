//! row: l
//! error: E0277
//! says: `Host` memory where `Cuda` memory is needed
//! A CUDA kernel that would write to a host address.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut cpu, mut cpu_stream) = serving();
    let (mut gpu, mut gpu_stream) = serving_cuda();
    let mut cpu = cpu.step(&mut cpu_stream)?;
    let mut gpu = gpu.step(&mut gpu_stream)?;
    let work = &mut gpu.buffers.work;
    #[cfg(crime)]
    cuda::add_assign(gpu.on, &mut cpu.buffers.work.hidden, &work.attn)?;
    #[cfg(not(crime))]
    cuda::add_assign(gpu.on, &mut work.hidden, &work.attn)?;
    drop(cpu);
    Ok(())
}
