//! The CUDA backend of memtier: VMM regions, streams, graphs and kernels.
