//! An emulated CUDA device: [`ptx`] interprets the text of kernels on the processor, `driver` is the driver's API over it.
//!
//! For tests on machines without a GPU, and for code paths of devices that nobody has at hand. What it is and what it is
//! not: `README.md` beside this crate.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod driver;
pub mod ptx;
