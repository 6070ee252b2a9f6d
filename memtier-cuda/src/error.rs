//! What goes wrong with a driver, and what to do about it.

/// A call of the CUDA driver failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{call} failed: {name} ({code}), {text}")]
pub struct DriverError {
    /// The driver's function.
    pub call: &'static str,
    /// Its result code.
    pub code: u32,
    /// The name of the code.
    pub name: String,
    /// The driver's own words.
    pub text: String,
}

/// Results after which a context does nothing any more: a kernel went where it must not, or the hardware failed. By the numbers of
/// `CUresult`: deinitialised, ECC, NVLink, context destroyed, assert, stack, instruction, alignment, address space, program counter,
/// address, time-out, launch failure, and what follows from one of them.
const LOST: [u32; 16] = [4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999];

impl DriverError {
    /// Whether the device's context is gone for this process: every later call reports the same, also those that free. Drop what was on
    /// it (nothing panics), end the process, and start anew.
    pub fn is_lost(&self) -> bool {
        LOST.contains(&self.code)
    }
}

/// A CUDA device was not opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no driver library.
    #[error(
        "no CUDA driver here: `libcuda.so.1` was not found. Install the NVIDIA driver {needed} or newer, or put the folder \
         that holds its libraries on LD_LIBRARY_PATH; without a GPU, use `memtier::HostBackend`"
    )]
    NoDriver {
        /// The oldest driver that will do.
        needed: &'static str,
    },
    /// The driver lacks a function that this crate calls.
    #[error("the CUDA driver has no `{symbol}`: it is older than {needed}; install a newer NVIDIA driver")]
    NoFunction {
        /// The missing function.
        symbol: &'static str,
        /// The oldest driver that will do.
        needed: &'static str,
    },
    /// The driver speaks an older CUDA than this crate was built for.
    #[error("the driver supports CUDA {}.{}, and {}.{} is needed: install the NVIDIA driver {needed} or newer",
        .found / 1000, .found % 1000 / 10, .wanted / 1000, .wanted % 1000 / 10)]
    OldDriver {
        /// What the driver supports, as it numbers versions: 13000 is 13.0.
        found: i32,
        /// What is needed, numbered alike.
        wanted: i32,
        /// The oldest driver that will do.
        needed: &'static str,
    },
    /// There is no device of this number.
    #[error("no CUDA device {ordinal}: {count} visible; check CUDA_VISIBLE_DEVICES and `nvidia-smi -L`")]
    NoDevice {
        /// What was asked.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// The device cannot map memory at reserved addresses.
    #[error(
        "{device} has no virtual memory management: a growable region needs it; use a Pascal or newer GPU with a data centre, workstation or WSL2 driver"
    )]
    NoVirtualMemory {
        /// The device's name.
        device: String,
    },
    /// The driver failed.
    #[error("{0}; `nvidia-smi` says whether the device works, and who holds its memory")]
    Driver(#[from] DriverError),
}

/// Results of loading code that name a mismatch of code and driver or device: no image for the device, PTX that is not valid, PTX of
/// a newer CUDA.
pub(crate) const MISMATCH: [u32; 3] = [209, 218, 222];
/// `CUDA_ERROR_INVALID_IMAGE`: no code at all, or a damaged one.
pub(crate) const INVALID_IMAGE: u32 = 200;
/// `CUDA_ERROR_NOT_FOUND`: no such name in a module.
pub(crate) const NOT_FOUND: u32 = 500;

/// Kernels were not compiled or loaded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// NVRTC could not be opened.
    #[error(
        "NVRTC could not be opened from {path}: {reason}. It is part of the CUDA toolkit, and of the Python wheel \
         `nvidia-cuda-nvrtc` (a zip file): give the path of `libnvrtc.so.*`"
    )]
    NoNvrtc {
        /// Where it was looked for.
        path: String,
        /// The loader's own words.
        reason: String,
    },
    /// The compiler refused a source.
    #[error("{file}.cu does not compile for {target}: {log}")]
    Compile {
        /// The source.
        file: String,
        /// The architecture.
        target: &'static str,
        /// The compiler's own words.
        log: String,
    },
    /// There are no compiled kernels for the device.
    #[error(
        "no kernels for compute capability {}.{} in {folder}: compile them with \
         `cargo run -p memtier-cuda --bin compile-kernels -- --nvrtc PATH --out FOLDER`", .capability.0, .capability.1
    )]
    NoTarget {
        /// The device's.
        capability: (u32, u32),
        /// Where they were looked for.
        folder: String,
    },
    /// There is no folder of compiled kernels.
    #[error(
        "no compiled kernels here: {path}: {reason}. Compile them with \
         `cargo run -p memtier-cuda --bin compile-kernels -- --nvrtc PATH --out FOLDER`, and name that folder"
    )]
    NoKernels {
        /// The manifest that was looked for.
        path: String,
        /// The system's own words.
        reason: String,
    },
    /// A compiled kernel is not there, is shorter or longer than the manifest says, or is no code at all.
    #[error("{path} is no compiled kernel: {reason}; compile the kernels again")]
    Damaged {
        /// The image.
        path: String,
        /// What is wrong with it: the system's or the driver's own words, or both lengths.
        reason: String,
    },
    /// Compiled code has no kernel of this name.
    #[error("no kernel `{entry}` in {path}: it was compiled from another source; compile the kernels again")]
    NoEntry {
        /// The kernel.
        entry: &'static str,
        /// The image.
        path: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {reason}")]
    File {
        /// Which one.
        path: String,
        /// The system's own words.
        reason: String,
    },
    /// The driver cannot run the code: it is for another device, or of a newer CUDA than the driver knows.
    #[error(
        "{path}: the driver takes no such code ({name}): it supports CUDA {}.{}, the device has compute capability {}.{}; compile \
         for that device, with an NVRTC no newer than the driver where the code is PTX, or install a newer driver",
        .cuda / 1000, .cuda % 1000 / 10, .capability.0, .capability.1
    )]
    Mismatch {
        /// The image.
        path: String,
        /// The driver's name for it.
        name: String,
        /// What the driver supports, as it numbers versions: 13000 is 13.0.
        cuda: i32,
        /// The device's.
        capability: (u32, u32),
    },
    /// The compiled kernels are of other sources than this crate was built with.
    #[error("{path} was compiled from other sources than this crate has: compile the kernels again")]
    Stale {
        /// The manifest.
        path: String,
    },
    /// An instruction of the device does not do what its stand-in does on others.
    #[error(
        "`{name}` gives {found} where {expected} is right (lane {lane}, element {element}): this crate has a wrong idea of it, or the \
         kernels were miscompiled. Compile them with NVRTC 13.1 or newer; please report it if that does not help"
    )]
    Instruction {
        /// The instruction.
        name: &'static str,
        /// The lane of the warp.
        lane: usize,
        /// Which of its results.
        element: usize,
        /// What the instruction gave.
        found: String,
        /// What it should have given.
        expected: String,
    },
    /// A compiled kernel takes other arguments than its wrapper passes.
    #[error(
        "`{entry}` takes {found} as argument {index}, its wrapper passes {wanted} bytes: compile the kernels again"
    )]
    Signature {
        /// The kernel.
        entry: &'static str,
        /// Which argument.
        index: usize,
        /// What the kernel takes.
        found: String,
        /// What the wrapper passes.
        wanted: usize,
    },
    /// The driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
}
