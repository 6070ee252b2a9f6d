//! CPU kernels of the reference engine, as functions over plain slices.
//!
//! Weights of GGUF files are [packed](pack) once into groups of sixteen rows, activations are [quantised](quantize_rows)
//! to bytes, and [matmuls](matmul) multiply the two in integers. Around them: normalisation, rotary positions, gated
//! activations, embedding lookup, and [attention](attend()) over a paged f16 cache.
//!
//! **One row, one result.** What a kernel gives for a row depends on that row's inputs alone: neither on the number of
//! rows in the call, nor on the row's place among them, nor on the number of threads, down to the last bit. A token is the
//! same in a prefill of any chunk size and alone in a decode step.
//!
//! **One result on every level.** The AVX-512, AVX2 and portable paths of [`Isa`] give the same bits too: integer dot
//! products are exact, and f32 operations follow one order everywhere. (Which NaN a NaN is may differ.)
//!
//! **No surprises.** No kernel allocates. Sizes are checked on entry; whatever fails a check gives a [`KernelError`] and
//! leaves the outputs alone. Parallel kernels run on a [`Threads`] that the caller owns.

mod attention;
mod blocks;
mod dequant;
mod error;
mod format;
mod half;
mod isa;
mod math;
mod matmul;
mod ops;
mod packed;
mod quant;
mod random;
mod threads;

pub use attention::{
    AttentionParams, HOLE, KvCache, KvCell, KvFormat, KvSequence, KvShape, Query, Ring, RingOf, Sinks, Views, attend,
    attend_with, kv_write,
};
pub use dequant::dequantize_raw_row;
pub use error::KernelError;
pub use format::Format;
pub use half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
pub use isa::{Isa, Level};
pub use matmul::{Input, Projection, matmul, matmul_gated, matmul_gated_quantize, matmul_many};
pub use ops::*;
pub use packed::{
    GROUP_ROWS, Packed, dequantize_row, group_bytes, groups, pack, pack_groups, pack_parallel, packed_bytes,
};
pub use quant::{QuantRows, RECORD_BYTES, RECORD_COLS, quantize_rows};
pub use random::{Purpose, philox4x32, uniform};
pub use threads::Threads;
