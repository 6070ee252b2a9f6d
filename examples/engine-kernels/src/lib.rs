//! CPU kernels of the reference engine.
