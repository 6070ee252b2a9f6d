//! Attention over a paged f16 key/value cache.
//!
//! The cache of one layer is made of blocks of [`KvShape::block_tokens`] tokens. A block holds
//! `keys[kv_head][dim][token]`, then `values[kv_head][token][dim]`, all f16: sixteen tokens' keys of one dimension fill a
//! register. A sequence owns a table of block numbers; position p lies in slot `p % block_tokens` of block
//! `table[p / block_tokens]`.

mod attend;
mod cache;
mod kernel;
mod lanes;
mod piece;

pub use attend::{AttentionParams, KvSequence, Query, attend};
pub use cache::{HOLE, KvCache, KvCell, KvShape, kv_block_elements, kv_write};
