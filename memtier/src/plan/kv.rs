//! What a KV cache costs in memtier's own paged layout.
//!
//! The cache is layer-major and paged: one block id stands for `block_tokens` positions in every layer of its group, and
//! layers may differ in heads, dimensions and element type. Layers that attend to a sliding window form a group of their
//! own, whose sequences never hold more than the window and the chunk in flight. What llama.cpp would allocate for the
//! same model is a different question, answered in [`llama_cpp`](super::llama_cpp).
//!
//! ```
//! use memtier::plan::KvDtype;
//! use memtier::plan::kv::{KvGroup, KvLayer};
//! use memtier::{Blocks, Bytes, Tokens};
//!
//! // Qwen3-4B: 36 layers of 8 KV heads of 128, stored as fp8 in blocks of 16 tokens.
//! let layers = [KvLayer::heads(8, 128, KvDtype::Fp8); 36];
//! let kv = KvGroup { layers: &layers, block_tokens: Tokens::new(16), window: None, prefill_chunk: Tokens::new(512) };
//! let batch = kv.blocks_for_batch(8, Tokens::new(4096))?;
//! assert_eq!(batch, Blocks::new(2048));
//! assert_eq!(kv.block_bytes()?.times(batch.count())?, Bytes::mib(2304));
//! # Ok::<(), memtier::Overflow>(())
//! ```

use std::fmt;
use std::str::FromStr;

use super::input::{Amount, Demand, Name};
use crate::units::{Blocks, Bytes, Overflow, Tokens};

/// Element type of a KV cache or of a recurrent state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum KvDtype {
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// 16-bit brain floats.
    Bf16,
    /// GGUF `Q8_0`: 32 elements in 34 bytes.
    Q8_0,
    /// 8-bit floats, and for each head's row of a token a 32-bit scale, as the CUDA kernels of `memtier-cuda` have them.
    Fp8Head32,
    /// 8-bit floats, and for each head's row of a token a 16-bit scale: no tensor has to be calibrated first.
    Fp8Head,
    /// 8-bit floats with one scale for the whole tensor, which is not part of the cache.
    Fp8,
    /// GGUF `Q5_1`: 32 elements in 24 bytes.
    Q5_1,
    /// GGUF `Q5_0`: 32 elements in 22 bytes.
    Q5_0,
    /// GGUF `Q4_1`: 32 elements in 20 bytes.
    Q4_1,
    /// NVFP4: e2m1, for 16 of them a ue4m3, and for each head's row of a token an f32: no tensor has to be calibrated first.
    Nvfp4,
    /// GGUF `Q4_0`: 32 elements in 18 bytes.
    Q4_0,
}

impl KvDtype {
    /// Every element type, largest first.
    pub const ALL: [KvDtype; 12] = [
        KvDtype::F32,
        KvDtype::F16,
        KvDtype::Bf16,
        KvDtype::Q8_0,
        KvDtype::Fp8Head32,
        KvDtype::Fp8Head,
        KvDtype::Fp8,
        KvDtype::Q5_1,
        KvDtype::Q5_0,
        KvDtype::Q4_1,
        KvDtype::Nvfp4,
        KvDtype::Q4_0,
    ];

    /// Elements that are stored together, and the bytes they take.
    ///
    /// `Q` types are ggml's blocks of 32 (`ggml-common.h`): a 16-bit scale, for `_1` types a 16-bit minimum, and the packed
    /// elements. 16 elements of NVFP4 are eight bytes of e2m1 (OCP Microscaling Formats 1.0, 2023, where e2m1 is defined) and a
    /// byte of ue4m3 (PTX ISA 8.7, `scale_vec::4X`: a scale for 16 of them).
    pub const fn granule(self) -> (u64, u64) {
        match self {
            KvDtype::F32 => (1, 4),
            KvDtype::F16 | KvDtype::Bf16 => (1, 2),
            KvDtype::Fp8Head32 | KvDtype::Fp8Head | KvDtype::Fp8 => (1, 1),
            KvDtype::Q8_0 => (32, 34),
            KvDtype::Q5_1 => (32, 24),
            KvDtype::Q5_0 => (32, 22),
            KvDtype::Q4_1 => (32, 20),
            KvDtype::Nvfp4 => (16, 9),
            KvDtype::Q4_0 => (32, 18),
        }
    }

    /// Bytes that each head's row of a token takes beside its elements: a scale, an f32 in the types of the CUDA kernels of
    /// `memtier-cuda` (`Fp8Head32`, `Nvfp4`), an f16 in `Fp8Head`.
    pub const fn head_bytes(self) -> u64 {
        match self {
            KvDtype::Fp8Head32 | KvDtype::Nvfp4 => 4,
            KvDtype::Fp8Head => 2,
            _ => 0,
        }
    }

    /// Bytes of 32 elements: what sizes are compared by.
    pub const fn bytes_of_32(self) -> u64 {
        let (elements, bytes) = self.granule();
        32 / elements * bytes
    }

    /// Bytes of one row of `elements`, the last granule filled up, without [`head_bytes`](Self::head_bytes).
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX` bytes.
    pub const fn row(self, elements: u64) -> Result<Bytes, Overflow> {
        let (together, bytes) = self.granule();
        Bytes::new(bytes).times(elements.div_ceil(together))
    }

    /// The spelling users type and read.
    pub const fn name(self) -> &'static str {
        match self {
            KvDtype::F32 => "f32",
            KvDtype::F16 => "f16",
            KvDtype::Bf16 => "bf16",
            KvDtype::Fp8Head32 => "fp8_head32",
            KvDtype::Fp8Head => "fp8_head",
            KvDtype::Fp8 => "fp8",
            KvDtype::Q8_0 => "q8_0",
            KvDtype::Q5_1 => "q5_1",
            KvDtype::Q5_0 => "q5_0",
            KvDtype::Q4_1 => "q4_1",
            KvDtype::Nvfp4 => "nvfp4",
            KvDtype::Q4_0 => "q4_0",
        }
    }
}

impl fmt::Display for KvDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A spelling that names no element type.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is no KV element type; known are f32, f16, bf16, fp8, fp8_head, fp8_head32, q8_0, q5_1, q5_0, q4_1, nvfp4, q4_0"
)]
pub struct UnknownDtype(String);

impl FromStr for KvDtype {
    type Err = UnknownDtype;

    fn from_str(text: &str) -> Result<Self, UnknownDtype> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| UnknownDtype(text.to_owned()))
    }
}

/// What one attention layer caches for one token.
///
/// ```
/// use memtier::Bytes;
/// use memtier::plan::KvDtype;
/// use memtier::plan::kv::KvLayer;
///
/// assert_eq!(KvLayer::heads(8, 128, KvDtype::F16).token_bytes()?, Bytes::new(2 * 8 * 128 * 2));
/// assert_eq!(KvLayer::latent(576, KvDtype::F16).token_bytes()?, Bytes::new(576 * 2));
/// # Ok::<(), memtier::Overflow>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct KvLayer {
    /// KV heads; one for a latent that all heads share.
    pub kv_heads: u64,
    /// Elements of a key head.
    pub k_dim: u64,
    /// Elements of a value head; zero when values are read out of the keys (MLA).
    pub v_dim: u64,
    /// Element type of the keys.
    pub k_dtype: KvDtype,
    /// Element type of the values.
    pub v_dtype: KvDtype,
}

impl KvLayer {
    /// Keys and values alike: `kv_heads` of `head_dim` elements.
    pub const fn heads(kv_heads: u64, head_dim: u64, dtype: KvDtype) -> Self {
        Self { kv_heads, k_dim: head_dim, v_dim: head_dim, k_dtype: dtype, v_dtype: dtype }
    }

    /// Multi-head latent attention: one latent of `elements` (576 in DeepSeek V2 and V3: rank 512 and 64 rotary) and no
    /// values.
    pub const fn latent(elements: u64, dtype: KvDtype) -> Self {
        Self { kv_heads: 1, k_dim: elements, v_dim: 0, k_dtype: dtype, v_dtype: dtype }
    }

    /// Bytes of the keys of one token.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn k_bytes(&self) -> Result<Bytes, Overflow> {
        self.row(self.k_dtype, self.k_dim)
    }

    /// Bytes of the values of one token.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn v_bytes(&self) -> Result<Bytes, Overflow> {
        self.row(self.v_dtype, self.v_dim)
    }

    fn row(&self, dtype: KvDtype, dim: u64) -> Result<Bytes, Overflow> {
        let heads = if dim == 0 { 0 } else { self.kv_heads };
        let elements = dtype.row(heads.checked_mul(dim).ok_or(Overflow)?)?;
        elements.plus(Bytes::new(dtype.head_bytes()).times(heads)?)
    }

    /// Bytes of keys and values of one token.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn token_bytes(&self) -> Result<Bytes, Overflow> {
        self.k_bytes()?.plus(self.v_bytes()?)
    }
}

/// Layers that share block ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct KvGroup<'a> {
    /// Its layers, each with its own geometry.
    pub layers: &'a [KvLayer],
    /// Tokens in one block (zero counts as one).
    pub block_tokens: Tokens,
    /// How many tokens a token sees, itself included; `None` is all before it.
    pub window: Option<Tokens>,
    /// The most tokens of one sequence in one forward pass.
    pub prefill_chunk: Tokens,
}

impl KvGroup<'_> {
    fn per_block(&self) -> Tokens {
        self.block_tokens.max(Tokens::new(1))
    }

    /// Bytes of one token in all layers of the group.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn token_bytes(&self) -> Result<Bytes, Overflow> {
        self.layers.iter().try_fold(Bytes::ZERO, |sum, layer| sum.plus(layer.token_bytes()?))
    }

    /// Bytes of one block in one layer.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn block_bytes_in(&self, layer: &KvLayer) -> Result<Bytes, Overflow> {
        layer.token_bytes()?.times(self.per_block().count())
    }

    /// Bytes of one block in all layers of the group.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn block_bytes(&self) -> Result<Bytes, Overflow> {
        self.token_bytes()?.times(self.per_block().count())
    }

    /// The most blocks one sequence of the group can hold, however long it gets; `None` without a window.
    ///
    /// A pass over a chunk reads from `window - 1` tokens before its first token to its last. One token is added, so
    /// that the next decode step may be laid out before the last one has settled. A run of `n` tokens that starts
    /// anywhere touches at most `ceil((n - 1) / block) + 1` blocks.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX` tokens.
    pub fn window_blocks(&self) -> Result<Option<Blocks>, Overflow> {
        let Some(window) = self.window else { return Ok(None) };
        let live = window.plus(self.prefill_chunk)?;
        Ok(Some(match live.minus(Tokens::new(1)) {
            Ok(rest) => rest.in_blocks_of(self.per_block()).plus(Blocks::new(1))?,
            Err(Overflow) => Blocks::ZERO,
        }))
    }

    /// The most blocks a sequence holds on its way to `tokens` tokens.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX` tokens.
    pub fn blocks_for(&self, tokens: Tokens) -> Result<Blocks, Overflow> {
        let all = tokens.in_blocks_of(self.per_block());
        Ok(self.window_blocks()?.map_or(all, |window| window.min(all)))
    }

    /// The same for `batch` sequences: they share nothing.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX` blocks.
    pub fn blocks_for_batch(&self, batch: u64, tokens: Tokens) -> Result<Blocks, Overflow> {
        self.blocks_for(tokens)?.times(batch)
    }

    /// The pool of this group as the planner wants it: a group without a window may shrink to one sequence of
    /// `max_seq_len`; a windowed one is small and gets all it can use.
    ///
    /// # Errors
    /// [`Overflow`] when a size leaves the range.
    pub fn demand(
        &self,
        name: impl Into<Name>,
        space: &'static str,
        batch: u64,
        max_seq_len: Tokens,
    ) -> Result<Demand, Overflow> {
        let (block, most) = (self.block_bytes()?, self.blocks_for_batch(batch, max_seq_len)?);
        let floor = if self.window.is_some() { most } else { self.blocks_for(max_seq_len)? };
        Ok(Demand::pool(name, space, Amount::elastic_pool(block, self.per_block(), floor, most)))
    }
}

/// The state of the recurrent layers of one sequence: the last inputs of the convolution, and the state proper.
///
/// ```
/// use memtier::Bytes;
/// use memtier::plan::KvDtype;
/// use memtier::plan::kv::RecurrentState;
///
/// // Mamba 2.8B: 64 layers, 5120 wide, state 16, a convolution of 4 taps.
/// let dtype = KvDtype::F32;
/// let mamba =
///     RecurrentState { layers: 64, inner: 5120, conv: 4, groups: 0, state: 16, conv_dtype: dtype, state_dtype: dtype };
/// assert_eq!(mamba.slab_bytes()?, Bytes::kib(24_320)); // 23.75 MiB
/// # Ok::<(), memtier::Overflow>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct RecurrentState {
    /// Recurrent layers.
    pub layers: u64,
    /// Width of the inner activation (heads x head dimension).
    pub inner: u64,
    /// Taps of the convolution; all but the current one are kept.
    pub conv: u64,
    /// Groups whose input and output projections pass through the convolution too; zero when they do not (Mamba 1).
    pub groups: u64,
    /// State elements per inner element.
    pub state: u64,
    /// Element type of what the convolution keeps.
    pub conv_dtype: KvDtype,
    /// Element type of the state proper.
    pub state_dtype: KvDtype,
}

impl RecurrentState {
    /// Bytes of one sequence in one layer.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn layer_bytes(&self) -> Result<Bytes, Overflow> {
        let projections = self.groups.checked_mul(self.state).and_then(|one| one.checked_mul(2));
        let channels = projections.and_then(|both| both.checked_add(self.inner));
        let conv = channels.and_then(|channels| channels.checked_mul(self.conv.saturating_sub(1)));
        let state = self.state.checked_mul(self.inner);
        self.conv_dtype.row(conv.ok_or(Overflow)?)?.plus(self.state_dtype.row(state.ok_or(Overflow)?)?)
    }

    /// Bytes of one sequence: one slab of the state pool.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn slab_bytes(&self) -> Result<Bytes, Overflow> {
        self.layer_bytes()?.times(self.layers)
    }
}
