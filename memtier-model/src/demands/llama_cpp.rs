//! What llama.cpp would allocate for the same model and settings.

use memtier::plan::KvDtype;
use memtier::plan::llama_cpp::{Cache, KeyValue, Layer};
use memtier::{Bytes, Overflow, Tokens};

use super::caches::{STATE_DTYPE, kv_layer};
use crate::layout::{LayerMemory, ModelLayout};

/// Settings of a llama.cpp context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LlamaCpp {
    /// Context of all sequences together (`--ctx-size`).
    pub n_ctx: Tokens,
    /// Sequences (`--parallel`).
    pub n_seq: u64,
    /// Element type of keys.
    pub keys: KvDtype,
    /// Element type of values.
    pub values: KvDtype,
    /// One stream of cells for all sequences (`--kv-unified`).
    pub unified: bool,
    /// Tokens of a physical batch (`--ubatch-size`).
    pub ubatch: Tokens,
    /// Whole contexts for windowed layers (`--swa-full`).
    pub swa_full: bool,
    /// Older states kept of each sequence.
    pub snapshots: u64,
    /// What cells are padded to: 256; older builds without flash attention padded to 32.
    pub pad: Tokens,
}

impl LlamaCpp {
    /// llama.cpp's defaults for one context: one sequence, 16-bit keys and values, physical batches of 512 tokens.
    pub const fn new(n_ctx: Tokens) -> Self {
        Self {
            n_ctx,
            n_seq: 1,
            keys: KvDtype::F16,
            values: KvDtype::F16,
            unified: false,
            ubatch: Tokens::new(512),
            swa_full: false,
            snapshots: 0,
            pad: Tokens::new(256),
        }
    }
}

/// What llama.cpp prints for a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LlamaCppBytes {
    /// Keys and values of layers that see everything.
    pub global: KeyValue,
    /// Keys and values of layers with a window.
    pub windowed: KeyValue,
    /// Index keys of sparse attention.
    pub index: Bytes,
    /// What recurrent layers keep of the convolution (`R`).
    pub conv: Bytes,
    /// What they keep of the recurrence (`S`).
    pub state: Bytes,
}

impl LlamaCppBytes {
    /// Both parts of the recurrent state.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn recurrent(&self) -> Result<Bytes, Overflow> {
        self.conv.plus(self.state)
    }

    /// All of it.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn total(&self) -> Result<Bytes, Overflow> {
        let kv = self.global.total()?.plus(self.windowed.total()?)?;
        kv.plus(self.index)?.plus(self.recurrent()?)
    }
}

impl LlamaCpp {
    /// What the context takes for `layout`. Layers that only draft are left out, as llama.cpp leaves them out of the
    /// main context.
    ///
    /// # Errors
    /// [`Overflow`] when a size leaves the range of 64 bits.
    pub fn bytes(&self, layout: &ModelLayout) -> Result<LlamaCppBytes, Overflow> {
        let layers: Vec<Layer> = layout.layers.iter().filter_map(|layer| self.layer(layer)).collect();
        let cache = Cache {
            n_seq: self.n_seq,
            unified: self.unified,
            ubatch: self.ubatch,
            swa_full: self.swa_full,
            pad: self.pad,
            ..Cache::new(&layers, self.n_ctx)
        };
        let bytes = cache.bytes()?;
        let mut sum = LlamaCppBytes { global: bytes.global, windowed: bytes.windowed, ..LlamaCppBytes::default() };
        let streams = if self.unified { 1 } else { self.n_seq.max(1) };
        let cells = cache.cells()?.times(streams)?.count();
        let copies =
            self.snapshots.checked_add(1).and_then(|each| each.checked_mul(self.n_seq.max(1))).ok_or(Overflow)?;
        for layer in &layout.layers {
            let indexer = layer.cache.map_or(0, |cache| cache.indexer);
            sum.index = sum.index.plus(self.keys.row(indexer)?.times(cells)?)?;
            if let Some(state) = layer.state {
                sum.conv = sum.conv.plus(STATE_DTYPE.row(state.conv)?.times(copies)?)?;
                sum.state = sum.state.plus(STATE_DTYPE.row(state.state)?.times(copies)?)?;
            }
        }
        Ok(sum)
    }

    fn layer(&self, layer: &LayerMemory) -> Option<Layer> {
        let cache = layer.cache.as_ref()?;
        let window = cache.window.map(Tokens::new);
        Some(Layer { geometry: kv_layer(cache, self.keys, self.values, 1), window })
    }
}
