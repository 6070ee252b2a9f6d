//! An emulated CUDA device: [`ptx`] interprets the text of kernels on the processor.
//!
//! For tests on machines without a GPU, and for code paths of devices that nobody has at hand. What it is and what it is
//! not: `README.md` beside this crate.

pub mod ptx;
