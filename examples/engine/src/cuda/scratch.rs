//! What one forward pass takes of the scratch stack on a GPU.

use memtier::{Bytes, SizeError};
use memtier_cuda::kernels::DecodeShape;

use super::{library::pays, weights::unpacked};
use crate::{
    arch::{Arch, LayerArch},
    forward::Pass,
};

/// Blocks of the attention kernel that fill a device.
const BLOCKS: usize = 264;
/// The most shares of a sequence: more of them are merged longer than they save.
const MOST_SHARES: usize = 16;

/// Elements of each buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Units {
    /// The residual stream (f32), and its norm (bf16).
    pub(super) hidden: usize,
    /// What is added to the residual stream behind a norm of its own: f32.
    pub(super) delta: usize,
    /// Queries, keys and values as they are projected: bf16.
    pub(super) qkv: usize,
    /// Queries (f16), and what attention gives (bf16).
    pub(super) q: usize,
    /// Between the feed-forward projections: bf16.
    pub(super) ffn: usize,
    /// Gate and up as a library projects them, side by side: bf16.
    pub(super) gate_up: usize,
    /// The rows that want logits (f32), and their norm (bf16).
    pub(super) picked: usize,
    /// Cosines and sines: f32.
    pub(super) angles: usize,
    /// Partial results of attention: f32.
    pub(super) partial: usize,
    /// Its counters: u32.
    pub(super) arrived: usize,
    /// Tokens that each token sees: u32.
    pub(super) tokens: usize,
    /// Logits: f32.
    pub(super) logits: usize,
    /// Matrices of few bits, those of one product at a time: bf16.
    pub(super) unpacked: usize,
}

/// How a layer decodes.
fn decode(layer: &LayerArch, shares: usize) -> DecodeShape {
    DecodeShape { heads: layer.kv.params.heads, scale: layer.kv.params.scale, window: None, softcap: None, shares }
}

/// Blocks that the attention kernel has for a share of `queries` queries: eight heads each.
fn blocks(layer: &LayerArch, queries: usize) -> Option<usize> {
    let kv_heads = layer.kv.shape.kv_heads.max(1);
    queries.checked_mul(kv_heads)?.checked_mul((layer.kv.params.heads / kv_heads).div_ceil(8))
}

/// Shares of each of `queries` queries, from what is known when the pass is planned: the same for a graph and an eager pass. A
/// result depends on them, so where it must not depend on the batch they do not either.
pub(super) fn shares(arch: &Arch, layer: &LayerArch, queries: usize) -> usize {
    if arch.batch_invariant {
        return MOST_SHARES;
    }
    (BLOCKS / blocks(layer, queries.max(1)).unwrap_or(BLOCKS).max(1)).clamp(1, MOST_SHARES)
}

impl Units {
    /// For a pass of `tokens` tokens, of which `picks` want logits and at most `decodes` are queries for themselves. `None` when a size
    /// overflows.
    pub(super) fn new(arch: &Arch, Pass { tokens, picks, decodes }: Pass) -> Option<Self> {
        let layers = &arch.weights.layers;
        let widest = |of: fn(&crate::weights::LayerDims) -> usize| layers.iter().map(of).max().unwrap_or(1);
        let hidden = arch.weights.hidden;
        let rows = |columns: usize| tokens.checked_mul(columns);
        let angles = arch.ropes.iter().map(|rope| rope.dims).max().unwrap_or(2);
        let partial = |layer: &LayerArch| match shares(arch, layer, decodes) {
            1 => Some(1),
            shares => decode(layer, shares).partial_units(decodes, layer.kv.shape.head_dim),
        };
        let partial = arch.layers.iter().try_fold(1, |most: usize, layer| Some(most.max(partial(layer)?)))?;
        let counters = |layer: &LayerArch| decode(layer, 1).counters(decodes, layer.kv.shape.kv_heads.max(1));
        let arrived = arch.layers.iter().try_fold(1, |most: usize, layer| Some(most.max(counters(layer)?)))?;
        Some(Units {
            hidden: rows(hidden)?,
            delta: if arch.post_norms { rows(hidden)? } else { 1 },
            qkv: rows(widest(|layer| layer.q_rows + 2 * layer.kv_rows))?,
            q: rows(widest(|layer| layer.q_rows))?,
            ffn: rows(widest(|layer| layer.ffn))?,
            gate_up: match arch.library > 0 && layers.iter().any(|layer| pays(tokens, layer.hidden, 2 * layer.ffn)) {
                true => rows(widest(|layer| layer.ffn).checked_mul(2)?)?,
                false => 1,
            },
            picked: picks.checked_mul(hidden)?,
            angles: rows(angles)?,
            partial,
            arrived,
            tokens,
            logits: picks.checked_mul(arch.vocab())?,
            unpacked: unpacked(&arch.weights, tokens, arch.batch_invariant)?,
        })
    }

    /// The bytes of all of them, each on a multiple of 256. `None` when they overflow.
    fn bytes(&self, ropes: usize) -> Option<u64> {
        let Units { hidden, delta, qkv, q, ffn, gate_up, picked, angles, partial, arrived, tokens, logits, unpacked } =
            *self;
        let wide = [hidden, delta, picked, partial, arrived, tokens, logits].map(|units| (units, 4));
        let half = [hidden, qkv, q, q, ffn, gate_up, picked, unpacked].map(|units| (units, 2));
        let angles = std::iter::repeat_n((angles, 4), ropes);
        wide.into_iter().chain(half).chain(angles).try_fold(0u64, |sum, (units, size)| {
            sum.checked_add((units as u64).checked_mul(size)?.checked_next_multiple_of(256)?)
        })
    }
}

/// What any pass of up to `tokens` tokens takes, of which up to `picks` want logits. Few tokens have more shares each, so no size
/// alone is the largest.
///
/// # Errors
/// [`SizeError::Overflow`].
pub(super) fn bytes(arch: &Arch, tokens: usize, picks: usize) -> Result<Bytes, SizeError> {
    let overflow = SizeError::Overflow { field: "forward scratch" };
    let of = |(tokens, decodes): (usize, usize)| {
        // Every query for itself wants logits.
        let picks = picks.min(tokens);
        Units::new(arch, Pass { tokens, picks, decodes })?.bytes(arch.ropes.len())
    };
    // Beyond this many queries nothing is shared, and everything grows with the tokens.
    let most = picks.min(tokens);
    let mut sizes = (1..=most.min(BLOCKS)).chain([most]).map(|decodes| (tokens, decodes)).map(of);
    let most = sizes.try_fold(0, |most: u64, bytes| Some(most.max(bytes?)));
    most.map(Bytes::new).ok_or(overflow)
}
