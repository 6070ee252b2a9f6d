//! What vLLM would make of the same memory: equal pages for attention and state, and how many requests they hold.
//!
//! vLLM gives every layer pages of one size. A recurrent state is one page, so a model that has both gets attention
//! blocks long enough to be as large as a state, and its layers are put into groups of equal length that share pages.

use memtier::plan::KvDtype;
use memtier::{Bytes, Overflow, Tokens};

use super::caches::kv_layer;
use crate::layout::ModelLayout;

/// Blocks are multiples of this many tokens.
const GRAIN: u64 = 16;
/// The convolution's inputs are kept in the model's own 16 bits, the state proper in 32.
const CONV_DTYPE: KvDtype = KvDtype::Bf16;
const STATE_DTYPE: KvDtype = KvDtype::F32;

/// A cache as vLLM prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VllmBytes {
    /// Bytes of one page of one layer.
    pub page: Bytes,
    /// Tokens in one block of attention.
    pub block_tokens: Tokens,
    /// Bytes of one block, over the layers of a group.
    pub block: Bytes,
    /// Blocks in the memory that was given.
    pub blocks: u64,
    /// Blocks that one request of the stated length holds.
    pub blocks_per_request: u64,
}

impl VllmBytes {
    /// "GPU KV cache size": tokens of requests of the stated length, rounded down.
    pub fn tokens(&self, max_seq_len: Tokens) -> Option<u64> {
        let tokens = u128::from(self.blocks) * u128::from(max_seq_len.count());
        u64::try_from(tokens.checked_div(u128::from(self.blocks_per_request))?).ok()
    }

    /// "Maximum concurrency" in hundredths, rounded to the nearest.
    pub fn concurrency(&self) -> Option<u64> {
        let (blocks, each) = (u128::from(self.blocks) * 100, u128::from(self.blocks_per_request));
        u64::try_from((blocks + each / 2).checked_div(each)?).ok()
    }
}

/// The cache that vLLM makes of `memory` for requests of `max_seq_len`.
///
/// Layers with a window are charged the whole context, as vLLM counts them when it unifies pages. A group of recurrent
/// layers holds two pages a request: the state, and the one before it.
///
/// # Errors
/// [`Overflow`] when a size leaves the range of 64 bits.
pub fn vllm(layout: &ModelLayout, dtype: KvDtype, memory: Bytes, max_seq_len: Tokens) -> Result<VllmBytes, Overflow> {
    let caches: Vec<_> = layout.layers.iter().filter_map(|layer| layer.cache.as_ref()).collect();
    let states: Vec<_> = layout.layers.iter().filter_map(|layer| layer.state.as_ref()).collect();
    let token = match caches.iter().max_by_key(|cache| cache.elements()) {
        Some(cache) => kv_layer(cache, dtype, dtype, 1).token_bytes()?,
        None => Bytes::ZERO,
    };
    let mut state = Bytes::ZERO;
    for each in &states {
        state = state.max(CONV_DTYPE.row(each.conv)?.plus(STATE_DTYPE.row(each.state)?)?);
    }
    let block_tokens = match state.count().checked_div(token.count()) {
        Some(least) if !state.is_zero() => {
            let exact = least.checked_mul(token.count()) == Some(state.count());
            (least + u64::from(!exact)).checked_next_multiple_of(GRAIN).ok_or(Overflow)?
        }
        _ => GRAIN,
    };
    let page = token.times(block_tokens)?.max(state);
    // Groups are as long as the rarer kind.
    let group = match (caches.len() as u64, states.len() as u64) {
        (0, some) | (some, 0) => some,
        (attending, recurring) => attending.min(recurring),
    };
    let block = page.times(group)?;
    let groups = |layers: usize| (layers as u64).div_ceil(group.max(1));
    let attention = max_seq_len.in_blocks_of(Tokens::new(block_tokens)).count().checked_mul(groups(caches.len()));
    let blocks_per_request = attention.and_then(|all| all.checked_add(2 * groups(states.len()))).ok_or(Overflow)?;
    let blocks = memory.count().checked_div(block.count()).unwrap_or(0);
    Ok(VllmBytes { page, block_tokens: Tokens::new(block_tokens), block, blocks, blocks_per_request })
}
