//! Attention over a paged key/value cache of one of the [formats](KvFormat).
//!
//! The cache of one layer is made of blocks of [`KvShape::block_tokens`] tokens. A block holds
//! `keys[kv_head][dim][token]`, then `values[kv_head][token][dim]`: sixteen tokens' keys of one dimension fill a
//! register. A sequence owns a table of block numbers; position p lies in slot `p % block_tokens` of block
//! `table[p / block_tokens]`.

mod attend;
mod cache;
mod format;
mod kernel;
mod lanes;
mod pack;
mod piece;
mod rotate;
mod unpack;

pub use attend::{AttentionParams, KvSequence, Query, Ring, RingOf, Sinks, Views, attend, attend_with};
pub use cache::{HOLE, KvCache, KvCell, KvShape, kv_write};
pub use format::KvFormat;
