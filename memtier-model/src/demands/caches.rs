//! The caches of a portion: one group a window, and the states.

use memtier::plan::kv::{KvGroup, KvLayer};
use memtier::plan::{Config, KvDtype};
use memtier::{Bytes, Overflow, Tokens};

use crate::layout::{LayerCache, LayerMemory, LayerState};

/// The index key of sparse attention keeps this type whatever the cache does.
const INDEX_DTYPE: KvDtype = KvDtype::F16;
/// Recurrent layers keep sums over the whole sequence: 32-bit floats.
pub(super) const STATE_DTYPE: KvDtype = KvDtype::F32;

/// Layers of one group, with what they cache for a token.
pub(super) struct Group {
    pub(super) window: Option<Tokens>,
    pub(super) layers: Vec<KvLayer>,
}

impl Group {
    pub(super) fn kv<'g>(&'g self, config: &Config) -> KvGroup<'g> {
        KvGroup {
            layers: &self.layers,
            block_tokens: config.block_tokens,
            window: self.window,
            prefill_chunk: config.prefill_chunk,
        }
    }
}

/// What a layer caches for a token on one of `parts` devices. Fewer heads than devices, and latents, are on each whole.
pub(super) fn kv_layer(cache: &LayerCache, keys: KvDtype, values: KvDtype, parts: u64) -> KvLayer {
    let kv_heads = cache.kv_heads.div_ceil(parts.max(1));
    KvLayer { kv_heads, k_dim: cache.key_dim, v_dim: cache.value_dim, k_dtype: keys, v_dtype: values }
}

/// The groups, the one without a window first, then by window.
pub(super) fn groups<'l>(
    layers: impl Iterator<Item = &'l LayerMemory>,
    keys: KvDtype,
    values: KvDtype,
    parts: u64,
) -> Vec<Group> {
    let mut groups = vec![Group { window: None, layers: Vec::new() }];
    for cache in layers.filter_map(|layer| layer.cache.as_ref()) {
        let window = cache.window.map(Tokens::new);
        let at = groups.iter().position(|group| group.window == window).unwrap_or_else(|| {
            groups.push(Group { window, layers: Vec::new() });
            groups.len() - 1
        });
        groups[at].layers.push(kv_layer(cache, keys, values, parts));
        if cache.indexer > 0 {
            groups[at].layers.push(KvLayer::latent(cache.indexer, INDEX_DTYPE));
        }
    }
    groups.sort_by_key(|group| group.window);
    groups.retain(|group| !group.layers.is_empty());
    groups
}

/// Bytes of one recurrent layer's state for one sequence.
pub(super) fn state_bytes(state: &LayerState, parts: u64) -> Result<Bytes, Overflow> {
    let parts = parts.max(1);
    STATE_DTYPE.row(state.conv.div_ceil(parts))?.plus(STATE_DTYPE.row(state.state.div_ceil(parts))?)
}

/// Bytes of all states of one sequence.
pub(super) fn slab<'l>(layers: impl Iterator<Item = &'l LayerMemory>, parts: u64) -> Result<Bytes, Overflow> {
    layers
        .filter_map(|layer| layer.state.as_ref())
        .try_fold(Bytes::ZERO, |sum, state| sum.plus(state_bytes(state, parts)?))
}
