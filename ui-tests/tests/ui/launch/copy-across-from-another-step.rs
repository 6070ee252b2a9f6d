//! row: l
//! error: E0277
//! says: copies of this recorder do not reach `Eager<Host>`
//! Host memory of another engine as the source of a device's copy: nothing orders that engine's steps with it.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut cpu, mut cpu_stream) = serving();
    let (mut gpu, mut gpu_stream) = serving_cuda();
    let cpu = cpu.step(&mut cpu_stream)?;
    let mut gpu = gpu.step(&mut gpu_stream)?;
    let work = &mut gpu.buffers.work;
    #[cfg(crime)]
    gpu.on.copy_across(&mut work.hidden, cpu.buffers.work.attn.read())?;
    #[cfg(not(crime))]
    gpu.on.copy_across(&mut work.hidden, work.attn.read())?;
    drop(cpu);
    Ok(())
}
