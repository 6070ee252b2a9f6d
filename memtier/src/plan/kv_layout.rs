//! Where each layer's keys and values lie in a block.
//!
//! A block is layer-major: layer after layer, each with its own heads, dimensions and element type, in the order of the model.
//! The pool owns ids and knows only how many bytes a block has; a layer's kernels add the layer's offset. So one pool serves
//! layers of several types, and sharing, copying, spilling and saving treat a block as bytes.
//!
//! ```
//! use memtier::plan::KvDtype;
//! use memtier::plan::kv::KvLayer;
//! use memtier::plan::kv_layout::BlockLayout;
//! use memtier::{Bytes, Tokens};
//!
//! // SmolLM2 135M: 30 layers of 3 KV heads of 64. The first two stay f16, the rest are q4_0.
//! let layers: Vec<KvLayer> =
//!     (0..30).map(|layer| KvLayer::heads(3, 64, if layer < 2 { KvDtype::F16 } else { KvDtype::Q4_0 })).collect();
//! let layout = BlockLayout::new(&layers, Tokens::new(16))?;
//! assert_eq!(layout.token_bytes(), Bytes::new(2 * 2 * 3 * 64 * 2 + 28 * 2 * 3 * 36));
//! assert_eq!(layout.layer(2), Some(Bytes::new(16 * 2 * 768)..Bytes::new(16 * (2 * 768 + 216))));
//! # Ok::<(), memtier::plan::kv_layout::LayoutError>(())
//! ```

use std::ops::Range;

use super::kv::{KvDtype, KvLayer};
use crate::units::{Bytes, Overflow, Tokens};

/// The layers of one block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockLayout {
    /// Where each layer ends, in bytes from the block's beginning.
    ends: Vec<Bytes>,
    tokens: Tokens,
}

/// Layers that no block can hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Elements that share a scale would be those of two heads.
    #[error(
        "layer {layer} has heads of {dim} elements, and {dtype} keeps {of} together: give that layer a type without a scale for several \
         elements (f16, bf16, fp8_head)"
    )]
    Granule {
        /// The layer, counted from 0.
        layer: usize,
        /// Its element type.
        dtype: KvDtype,
        /// Elements of a head.
        dim: u64,
        /// Elements that share a scale.
        of: u64,
    },
    /// A size leaves the range.
    #[error("the size of a block overflows: use fewer tokens a block")]
    Overflow,
}

impl From<Overflow> for LayoutError {
    fn from(Overflow: Overflow) -> Self {
        LayoutError::Overflow
    }
}

impl BlockLayout {
    /// Lays `layers` out for blocks of `tokens` tokens (zero counts as one).
    ///
    /// # Errors
    /// [`LayoutError`] names the layer.
    pub fn new(layers: &[KvLayer], tokens: Tokens) -> Result<Self, LayoutError> {
        let tokens = tokens.max(Tokens::new(1));
        let mut ends = Vec::with_capacity(layers.len());
        let mut end = Bytes::ZERO;
        for (layer, kv) in layers.iter().enumerate() {
            for (dtype, dim) in [(kv.k_dtype, kv.k_dim), (kv.v_dtype, kv.v_dim)] {
                let (of, _) = dtype.granule();
                if !dim.is_multiple_of(of) {
                    return Err(LayoutError::Granule { layer, dtype, dim, of });
                }
            }
            end = end.plus(kv.token_bytes()?.times(tokens.count())?)?;
            ends.push(end);
        }
        Ok(BlockLayout { ends, tokens })
    }

    /// Where layer `index` is in a block; `None` past the last.
    pub fn layer(&self, index: usize) -> Option<Range<Bytes>> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(Bytes::ZERO, |before| self.ends[before]);
        Some(start..end)
    }

    /// Bytes of a block: what its pool is priced with.
    pub fn block_bytes(&self) -> Bytes {
        self.ends.last().copied().unwrap_or(Bytes::ZERO)
    }

    /// Bytes of one token in all layers.
    pub fn token_bytes(&self) -> Bytes {
        Bytes::new(self.block_bytes().count() / self.tokens.count())
    }
}

#[cfg(test)]
mod tests {
    use super::super::kv::KvGroup;
    use super::*;

    #[test]
    fn the_layout_prices_what_the_planner_prices() {
        for dtype in KvDtype::ALL {
            // Heads, dimensions and types differ.
            let layers =
                [KvLayer::heads(3, 64, dtype), KvLayer::heads(1, 256, KvDtype::F16), KvLayer::latent(576, dtype)];
            let layout = BlockLayout::new(&layers, Tokens::new(16)).unwrap();
            let group =
                KvGroup { layers: &layers, block_tokens: Tokens::new(16), window: None, prefill_chunk: Tokens::new(1) };
            assert_eq!(Ok(layout.block_bytes()), group.block_bytes(), "{dtype}");
            assert_eq!(Ok(layout.token_bytes()), group.token_bytes(), "{dtype}");
            let mut end = Bytes::ZERO;
            for (index, layer) in layers.iter().enumerate() {
                let range = layout.layer(index).unwrap();
                assert_eq!(range.start, end, "{dtype}: no gap and no overlap");
                assert_eq!(range.end.minus(range.start), group.block_bytes_in(layer), "{dtype}");
                end = range.end;
            }
            assert_eq!((end, layout.layer(3)), (layout.block_bytes(), None));
        }
    }

    #[test]
    fn a_head_that_is_no_whole_granule_is_refused_by_name() {
        let layers = [KvLayer::heads(2, 64, KvDtype::Q8_0), KvLayer::heads(2, 80, KvDtype::Q4_0)];
        let refused = BlockLayout::new(&layers, Tokens::new(16)).unwrap_err();
        assert_eq!(refused, LayoutError::Granule { layer: 1, dtype: KvDtype::Q4_0, dim: 80, of: 32 });
        assert!(
            refused.to_string().contains("layer 1 has heads of 80") && refused.to_string().contains("f16"),
            "{refused}"
        );
        let of = KvLayer::heads(2, 80, KvDtype::Fp8Head);
        assert_eq!(BlockLayout::new(&[of], Tokens::new(16)).unwrap().token_bytes(), Bytes::new(2 * 2 * 82));
        let huge = [KvLayer::heads(u64::MAX / 64, 64, KvDtype::F16)];
        assert_eq!(BlockLayout::new(&huge, Tokens::new(16)), Err(LayoutError::Overflow));
    }
}
