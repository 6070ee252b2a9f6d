//! The CUDA backend of memtier: device memory at addresses that never change, streams, graphs and kernels.
//!
//! Builds, and its CPU tests run, without CUDA: the driver is looked for when a [`CudaBackend`] is opened.
//!
//! Kernels are compiled without a GPU by `compile-kernels` and loaded with [`Kernels::load`]. Their wrappers in [`kernels`]
//! take spans, check shapes before the launch, and allocate nothing; the same call runs eagerly or is recorded.

mod backend;
mod compile;
mod driver;
mod error;
mod graph;
pub mod kernels;
mod launch;
mod module;
mod nvrtc;
mod physical;
mod queue;
mod staging;
mod vmm;

pub use backend::{CudaBackend, CudaOptions, DeviceMemory};
pub use compile::{KernelUse, compile_kernels};
pub use driver::DeviceInfo;
pub use error::{DriverError, KernelError, OpenError};
pub use module::Kernels;
pub use nvrtc::Nvrtc;
pub use queue::CudaStream;
