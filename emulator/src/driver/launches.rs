//! Launches: their arguments, taken when they are queued or captured, and their limits.

use std::{
    ffi::{c_uint, c_void},
    sync::Arc,
};

use cudarc::driver::sys::{CUfunction, CUlaunchAttributeID as Id, CUlaunchConfig, CUresult as R, CUstream};

use crate::ptx::{self, Trouble};

use super::{
    calls::{Driver, Inside, in_context},
    error::{Failure, Outcome, ensure},
    modules::Entry,
    work::Work,
};

/// A launch with everything that it needs.
pub(super) struct Kernel {
    entry: Entry,
    shape: Shape,
    params: Vec<u8>,
}

/// How many blocks of how many threads, and bytes of shared memory.
#[derive(Clone, Copy)]
struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
}

impl Kernel {
    /// Runs it, on a stream's thread.
    pub(super) fn run(&self, driver: &Driver) -> Outcome {
        let Kernel { entry, shape, params } = self;
        if entry.loaded.is_gone() {
            eprintln!("memtier emulated GPU: `{}` runs, and its module was unloaded", entry.name);
            return Err(R::CUDA_ERROR_LAUNCH_FAILED.into());
        }
        let globals = &entry.loaded.globals;
        let Shape { grid, block, shared } = *shape;
        let launch = ptx::Launch { grid, block, dynamic_shared: shared, params, globals };
        // SAFETY: what the device reaches when this begins stays until it is done; only the device uses it meanwhile, or its caller
        // breaks the driver's own rules.
        let ran = unsafe { ptx::run(&entry.loaded.code, entry.function()?, &launch, &driver.space, &driver.options) };
        ran.map(drop).map_err(|fault| {
            eprintln!("memtier emulated GPU: {fault}");
            result(&fault.trouble)
        })
    }
}

/// What a device says of it.
fn result(trouble: &Trouble) -> Failure {
    let result = match trouble {
        Trouble::Address { .. } => R::CUDA_ERROR_ILLEGAL_ADDRESS,
        Trouble::Misaligned { .. } => R::CUDA_ERROR_MISALIGNED_ADDRESS,
        Trouble::Instruction(_) => R::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        Trouble::Deadlock(_) | Trouble::Steps(_) => R::CUDA_ERROR_LAUNCH_TIMEOUT,
        _ => R::CUDA_ERROR_LAUNCH_FAILED,
    };
    result.into()
}

/// The arguments, one behind the other as the kernel has them.
///
/// # Safety
/// `pointers` is null, or has as many as the kernel has parameters, each valid for a read of its parameter.
unsafe fn gather(function: &ptx::Function, pointers: *mut *mut c_void) -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; function.param_bytes()];
    ensure(!pointers.is_null() || bytes.is_empty(), R::CUDA_ERROR_INVALID_VALUE)?;
    for (index, param) in function.params().iter().enumerate() {
        // SAFETY: by the caller there are as many.
        let from = unsafe { pointers.add(index).read() };
        ensure(!from.is_null(), R::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: by the caller; the kernel's parameters together are as long as `bytes`.
        let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), param.size) };
        bytes[param.offset..param.offset + param.size].copy_from_slice(from);
    }
    Ok(bytes)
}

/// Whether the device and the kernel take a launch of this shape.
fn fits(entry: &Entry, shape: Shape) -> Outcome {
    let Shape { grid, block, shared } = shape;
    let threads = block.iter().fold(1u64, |all, some| all.saturating_mul(u64::from(*some)));
    let whole = grid.iter().chain(&block).all(|count| *count > 0);
    let grid = grid[0] <= i32::MAX as u32 && grid[1] <= 65_535 && grid[2] <= 65_535;
    ensure(whole && grid && block[2] <= 64, R::CUDA_ERROR_INVALID_VALUE)?;
    ensure(threads <= u64::from(entry.most_threads()?), R::CUDA_ERROR_INVALID_VALUE)?;
    ensure(shared <= entry.dynamic, R::CUDA_ERROR_INVALID_VALUE)
}

/// # Safety
/// As of [`gather`].
unsafe fn launch(
    inside: &mut Inside,
    function: CUfunction,
    shape: Shape,
    stream: CUstream,
    pointers: *mut *mut c_void,
) -> Outcome {
    let stream = inside.stream(stream)?;
    let entry = inside.modules.entry(function)?.clone();
    fits(&entry, shape)?;
    // SAFETY: by the caller.
    let params = unsafe { gather(entry.function()?, pointers) }?;
    let kernel = Kernel { entry, shape, params };
    inside.queue(stream, Work::Kernel(Arc::new(kernel)), Vec::new()).map(drop)
}

/// # Safety
/// `pointers` is null, or has as many as the kernel has parameters, each valid for a read of its parameter. What the kernel uses is there
/// when it runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    pointers: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> u32 {
    in_context("cuLaunchKernel", |inside| {
        ensure(extra.is_null(), R::CUDA_ERROR_NOT_SUPPORTED)?;
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        // SAFETY: by the caller.
        unsafe { launch(inside, function, shape, stream, pointers) }
    })
}

/// # Safety
/// As of [`cuLaunchKernel`]; `config` is null, or valid with its attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    function: CUfunction,
    pointers: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> u32 {
    in_context("cuLaunchKernelEx", |inside| {
        ensure(!config.is_null(), R::CUDA_ERROR_INVALID_VALUE)?;
        ensure(extra.is_null(), R::CUDA_ERROR_NOT_SUPPORTED)?;
        // SAFETY: by the caller.
        let config = unsafe { config.read() };
        for index in 0..config.numAttrs as usize {
            // As a word: what the caller wrote there may be no variant of ours.
            // SAFETY: by the caller there are as many; each begins with its name.
            let id = unsafe { config.attrs.add(index).cast::<u32>().read() };
            // A kernel that may start early starts in its turn here. Nothing else changes what a kernel does or where.
            let known = [Id::CU_LAUNCH_ATTRIBUTE_IGNORE, Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION];
            ensure(known.iter().any(|known| *known as u32 == id), R::CUDA_ERROR_NOT_SUPPORTED)?;
        }
        let shape = Shape {
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            block: [config.blockDimX, config.blockDimY, config.blockDimZ],
            shared: config.sharedMemBytes,
        };
        // SAFETY: by the caller.
        unsafe { launch(inside, function, shape, config.hStream, pointers) }
    })
}
