//! What llama.cpp would allocate for the same cache: the oracle the planner's formulas are checked against.
//!
//! llama.cpp allocates whole caches instead of pages: every stream gets its cells up front, padded, and a layer with a
//! sliding window gets fewer cells than the others. Use it to compare with a running llama.cpp, not to size memtier.
//!
//! ```
//! use memtier::plan::KvDtype;
//! use memtier::plan::kv::KvLayer;
//! use memtier::plan::llama_cpp::{Cache, Layer};
//! use memtier::{Bytes, Tokens};
//!
//! // Llama 3 8B at 8192 tokens.
//! let layers = [Layer { geometry: KvLayer::heads(8, 128, KvDtype::F16), window: None }; 32];
//! assert_eq!(Cache::new(&layers, Tokens::new(8192)).bytes()?.total()?, Bytes::mib(1024));
//! # Ok::<(), memtier::Overflow>(())
//! ```

use super::kv::{KvLayer, RecurrentState};
use crate::units::{Bytes, Overflow, Tokens};

/// One attention layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Layer {
    /// What it caches for one token.
    pub geometry: KvLayer,
    /// Its sliding window, if it has one.
    pub window: Option<Tokens>,
}

/// A model's cache and the settings that size it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Cache<'a> {
    /// The attention layers.
    pub layers: &'a [Layer],
    /// Context of all sequences together.
    pub n_ctx: Tokens,
    /// Sequences (zero counts as one).
    pub n_seq: u64,
    /// One stream of cells for all sequences instead of one each.
    pub unified: bool,
    /// Tokens in one physical batch.
    pub ubatch: Tokens,
    /// Whether windowed layers get as many cells as the others.
    pub swa_full: bool,
    /// What cells are padded to: 256, or 32 in older builds without flash attention.
    pub pad: Tokens,
}

/// Bytes of keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct KeyValue {
    /// The keys.
    pub k: Bytes,
    /// The values.
    pub v: Bytes,
}

impl KeyValue {
    /// Both.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn total(&self) -> Result<Bytes, Overflow> {
        self.k.plus(self.v)
    }
}

/// What a cache takes, as llama.cpp prints it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct CacheBytes {
    /// Layers that see everything.
    pub global: KeyValue,
    /// Layers with a sliding window.
    pub windowed: KeyValue,
}

impl CacheBytes {
    /// All of it.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn total(&self) -> Result<Bytes, Overflow> {
        self.global.total()?.plus(self.windowed.total()?)
    }
}

impl<'a> Cache<'a> {
    /// One sequence of `n_ctx` tokens with llama.cpp's defaults: physical batches of 512 tokens, cells padded to 256.
    pub const fn new(layers: &'a [Layer], n_ctx: Tokens) -> Self {
        let (ubatch, pad) = (Tokens::new(512), Tokens::new(256));
        Self { layers, n_ctx, n_seq: 1, unified: false, ubatch, swa_full: false, pad }
    }

    fn padded(&self, tokens: Tokens) -> Result<Tokens, Overflow> {
        let pad = self.pad.count().max(1);
        tokens.count().checked_next_multiple_of(pad).map(Tokens::new).ok_or(Overflow)
    }

    fn streams(&self) -> u64 {
        if self.unified { 1 } else { self.n_seq.max(1) }
    }

    /// Cells of one stream in a layer without a window.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn cells(&self) -> Result<Tokens, Overflow> {
        self.padded(Tokens::new(self.n_ctx.count() / self.streams()))
    }

    /// Cells of one stream in a layer with a window of `window` tokens.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn window_cells(&self, window: Tokens) -> Result<Tokens, Overflow> {
        let cells = self.cells()?;
        if self.swa_full {
            return Ok(cells);
        }
        let windows = window.times(if self.unified { self.n_seq.max(1) } else { 1 })?;
        self.padded(cells.min(windows.plus(self.ubatch)?))
    }

    /// What all streams take.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn bytes(&self) -> Result<CacheBytes, Overflow> {
        let mut sum = CacheBytes::default();
        for layer in self.layers {
            let (cells, part) = match layer.window {
                None => (self.cells()?, &mut sum.global),
                Some(window) => (self.window_cells(window)?, &mut sum.windowed),
            };
            let tokens = cells.times(self.streams())?.count();
            part.k = part.k.plus(layer.geometry.k_bytes()?.times(tokens)?)?;
            part.v = part.v.plus(layer.geometry.v_bytes()?.times(tokens)?)?;
        }
        Ok(sum)
    }
}

/// What the recurrent layers take for `seqs` sequences, each with `snapshots` older states kept for rollback.
///
/// # Errors
/// [`Overflow`] past `u64::MAX`.
pub fn recurrent_bytes(state: &RecurrentState, seqs: u64, snapshots: u64) -> Result<Bytes, Overflow> {
    state.slab_bytes()?.times(snapshots.checked_add(1).ok_or(Overflow)?)?.times(seqs)
}
