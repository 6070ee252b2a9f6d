//! Launches: arguments as words, a grid, and the driver's call.

use std::ffi::c_void;

use cudarc::driver::sys;
use memtier::{LaunchError, NativeQueue};

use crate::{
    driver::check,
    queue::{CudaStream, while_doing},
};

/// The most arguments of a kernel here.
pub(crate) const MOST_ARGS: usize = 24;

/// A loaded kernel. Its module lives as long as the [`Kernels`](crate::Kernels) that it came from.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    pub(crate) raw: sys::CUfunction,
    /// Whether it may start before the kernel in front of it is done, because it waits for that itself.
    pub(crate) early: bool,
}

// SAFETY: the handle is only passed to the driver, which takes it from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// How many blocks of how many threads, with how many bytes of shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grid {
    pub(crate) blocks: (u32, u32, u32),
    pub(crate) threads: u32,
    pub(crate) shared: u32,
}

/// An argument, as the low bytes of a word.
pub(crate) trait Arg {
    fn word(self) -> u64;
}
impl Arg for u64 {
    fn word(self) -> u64 {
        self
    }
}
impl Arg for u32 {
    fn word(self) -> u64 {
        u64::from(self)
    }
}
impl Arg for f32 {
    fn word(self) -> u64 {
        u64::from(self.to_bits())
    }
}

/// Queues a kernel.
///
/// # Safety
/// The function's module is loaded. The function takes `N` arguments, each as many low bytes of its word as the function
/// says; what they point to is committed, as long as the kernel reads and writes for these arguments and this grid, and
/// nothing else writes it (or reads what is written) until the kernel is done.
pub(crate) unsafe fn launch<const N: usize>(
    queue: NativeQueue<'_>,
    function: Function,
    grid: Grid,
    words: &[u64; N],
) -> Result<(), LaunchError> {
    const { assert!(N <= MOST_ARGS) }
    let stream = queue.native().downcast_ref::<CudaStream>().ok_or(LaunchError::Unsupported {
        what: "queue",
        why: "a CUDA kernel runs on a queue of `CudaBackend`: open the engine on one",
    })?;
    // The driver reads through these, and writes nothing.
    let mut pointers = words.each_ref().map(|word| std::ptr::from_ref(word).cast::<c_void>().cast_mut());
    let (x, y, z) = grid.blocks;
    let launched = stream.enqueue_or_bind(|raw| {
        let attributes = &mut [start_early()];
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: grid.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: grid.shared,
            hStream: raw,
            attrs: attributes.as_mut_ptr(),
            numAttrs: u32::from(function.early),
        };
        // SAFETY: live handles; the pointers are to words as long as the longest argument; the rest by the caller. A kernel that
        // starts early waits for the one in front of it before it touches what that writes or reads; matrices that it reads
        // earlier are at rest, or it is not launched early.
        let result =
            unsafe { sys::cuLaunchKernelEx(&config, function.raw, pointers.as_mut_ptr(), std::ptr::null_mut()) };
        check("cuLaunchKernelEx", result)
    });
    launched.map_err(|error| LaunchError::Device(while_doing("launching a kernel")(error)))
}

/// The attribute that lets a kernel start early.
fn start_early() -> sys::CUlaunchAttribute {
    // SAFETY: plain numbers, of which zero is one.
    let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
    attribute.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    attribute
}
