//! row: l
//! error: E0277
//! says: `Cuda` memory where `Host` memory is needed
//! A CPU operation that would dereference a device address.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut cpu, mut cpu_stream) = serving();
    let (mut gpu, mut gpu_stream) = serving_cuda();
    let mut cpu = cpu.step(&mut cpu_stream)?;
    let gpu = gpu.step(&mut gpu_stream)?;
    let work = &mut cpu.buffers.work;
    #[cfg(crime)]
    host::add_assign(cpu.on, &mut work.hidden, &gpu.buffers.work.attn)?;
    #[cfg(not(crime))]
    host::add_assign(cpu.on, &mut work.hidden, &work.attn)?;
    drop(gpu);
    Ok(())
}
