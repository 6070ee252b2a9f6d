//! The CUDA backend of memtier: device memory at addresses that never change, streams, graphs and kernels.
//!
//! Builds, and its CPU tests run, without CUDA: the driver is looked for when a [`CudaBackend`] is opened.
//!
//! Kernels are compiled without a GPU by `compile-kernels` and loaded with [`Kernels::load`]. Their wrappers in [`kernels`]
//! take spans, check shapes before the launch, and allocate nothing; the same call runs eagerly or is recorded. Wrappers for
//! other kernels are generated from a signature, and compared with the CUDA source, by [`kernel`](macro@kernel).
//!
//! How to run the tests on a GPU: `docs/gpu.md` in the repository; what was measured there: `docs/gpu-measured.md`.

mod backend;
mod compile;
mod counting;
mod cublaslt;
mod driver;
mod entry;
mod error;
mod faults;
mod graph;
pub mod kernels;
mod launch;
mod module;
mod nvrtc;
mod physical;
mod pinned;
mod queue;
mod reserve;
mod self_test;
mod staging;
mod vmm;

pub use backend::{CudaBackend, CudaOptions, DeviceMemory};
pub use compile::{KernelUse, compile_for_emulation, compile_kernels, compile_source, compile_source_for_emulation};
pub use counting::{AllocationCounter, Allocations, Calls, CountError, Taken};
pub use cublaslt::{CublasLt, LtError, LtOutput, LtPlans, LtProduct, LtShape, LtVersion};
pub use driver::DeviceInfo;
pub use entry::{KernelEntry, KernelModule, LaunchGrid, LoadedKernel};
pub use error::{DriverError, KernelError, OpenError};
pub use memtier_macros::kernel;
pub use module::Kernels;
pub use nvrtc::Nvrtc;
pub use pinned::PinnedBackend;
pub use queue::CudaStream;

/// What generated code needs and nobody should write by hand.
#[doc(hidden)]
pub mod __private {
    pub use core;

    pub use memtier::{Cuda, Input, Is, LaunchError, Output, Place, Recorder};

    pub use crate::entry::{KernelEntry, LaunchGrid, Length, LoadedKernel, Scalar, fitted, launch};

    /// Elements and values by the names that the macro goes by.
    pub mod elements {
        pub use core::primitive::{bool, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64};

        pub use memtier::{
            E2M1x2, F8E4M3, F8E5M2, I4x2, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0, bf16, f16,
        };
    }
}
