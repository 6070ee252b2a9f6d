//! What the forward pass needs to know of a model, resolved once from its description.

use std::{ops::Range, sync::Arc};

use engine_kernels::{Activation, AttentionParams, Format, KvFormat, KvShape, RopeStyle, dequantize_raw_row};
use memtier::{
    Tokens,
    plan::{
        KvDtype,
        kv::KvLayer as PricedLayer,
        kv_layout::{BlockLayout, LayoutError},
    },
};
use memtier_model::describe::{
    Activation as Described, AttentionSpan, FeedForward, NormPlacement, RopeLayout, RopeScaling,
};
use memtier_model::{ModelDescription, TensorInfo};

use crate::{
    EngineError, ModelFile,
    kv_types::{KvTypes, dtype_of, format_of},
    ops::{KvLayer, Rope},
    streaming::Streaming,
    weights::{GpuWeights, LayerDims, WeightDims, WeightFormat},
};

/// Which pool a layer's keys and values are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// The whole context.
    Global,
    /// A sliding window.
    Window,
}

/// One layer.
#[derive(Clone, PartialEq, Debug)]
pub struct LayerArch {
    /// Its pool.
    pub group: Group,
    /// Its keys and values in that pool, and how it attends.
    pub kv: KvLayer,
    /// Index into [`Arch::ropes`].
    pub rope: usize,
    /// Whether queries and keys are normalised a head.
    pub qk_norm: bool,
    /// The feed-forward activation.
    pub activation: Activation,
}

/// Rings of the latest tokens in f16, one a sequence, beside a cache of smaller elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingArch {
    /// How many of the latest tokens are seen there.
    pub latest: usize,
    /// Tokens of a ring: the latest, and those of a [tile](RING_TILE), which are written before they look.
    pub tokens: usize,
    /// Units of 16 bits of a ring, all layers whose elements are smaller.
    pub units: usize,
}

/// Tokens that are written into rings, and then look, at a time.
pub const RING_TILE: usize = 64;

/// A model, or a run of its layers, as the forward pass sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct Arch {
    /// The number of its first layer in the model.
    pub first: usize,
    /// The sizes of its weights.
    pub weights: WeightDims,
    /// Its layers.
    pub layers: Vec<LayerArch>,
    /// The different rotary embeddings of its layers.
    pub ropes: Vec<Rope>,
    /// The epsilon of all norms.
    pub epsilon: f32,
    /// What embeddings are multiplied with.
    pub embed_scale: f32,
    /// Whether attention and feed-forward are normalised before the residual too.
    pub post_norms: bool,
    /// The cap of the final logits.
    pub softcap: Option<f32>,
    /// Whether any matrix is in a float format.
    pub floats: bool,
    /// Tokens of one block.
    pub block_tokens: usize,
    /// Units of 16 bits of one block of the global pool, all its layers.
    pub global_units: usize,
    /// The same of the pool of smaller elements; 0 where there is none.
    pub low_units: usize,
    /// The same of the window pool; 0 where no layer has a window.
    pub window_units: usize,
    /// The window, in tokens; 0 where no layer has one.
    pub window: usize,
    /// Copies of a window that are kept at the end of cached prefixes.
    pub window_snapshots: usize,
    /// How sequences run past their planned length, where they do.
    pub streaming: Option<Streaming>,
    /// Rings of the latest tokens in f16, where there are any.
    pub ring: Option<RingArch>,
    /// Blocks of a second tier for cached prefixes; 0 where there is none.
    pub cold_blocks: usize,
    /// Copies of a window beside that tier.
    pub cold_snapshots: usize,
    /// The context the model was trained on.
    pub trained_context: u32,
    /// Bytes that a vendor's library for products of prompts works in; 0 without one.
    pub library: usize,
    /// Whether a row of a pass gives the same bits whatever rows are beside it.
    pub batch_invariant: bool,
    /// Whether scales of keys and values are f32, as the kernels of a GPU want them, and not f16.
    pub wide_scales: bool,
    /// How a GPU keeps the matrices.
    pub gpu_weights: GpuWeights,
}

impl Arch {
    /// Resolves a described model, with blocks of `block_tokens` tokens.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] names what this engine does not do.
    pub fn new(file: &ModelFile, model: &ModelDescription, block_tokens: usize) -> Result<Self, EngineError> {
        let weights = weight_dims(file, model)?;
        let factors = rope_factors(file)?;
        let mut arch = Arch {
            first: 0,
            floats: weights.layers.iter().flat_map(|layer| &layer.formats).any(|format| format.is_float())
                || weights.head.unwrap_or(weights.embed).is_float(),
            weights,
            layers: Vec::new(),
            ropes: Vec::new(),
            epsilon: model.norm_eps,
            embed_scale: model.embedding_scale,
            post_norms: model.norm_placement == NormPlacement::PreAndPost,
            softcap: model.logit_softcap,
            block_tokens,
            global_units: 0,
            low_units: 0,
            window_units: 0,
            window: 0,
            window_snapshots: 0,
            streaming: None,
            ring: None,
            cold_blocks: 0,
            cold_snapshots: 0,
            trained_context: model.context_length,
            library: 0,
            batch_invariant: false,
            wide_scales: false,
            gpu_weights: GpuWeights::default(),
        };
        for layer in &model.layers {
            let attention =
                layer.attention().ok_or_else(|| unsupported("a layer that does not attend", "use a dense model"))?;
            if attention.qkv_bias || attention.output_bias {
                return Err(unsupported("attention biases", "no model it was tested with has them"));
            }
            if attention.key_dim != attention.value_dim || !attention.key_dim.is_multiple_of(16) {
                let what = format!("keys of {} and values of {} elements", attention.key_dim, attention.value_dim);
                return Err(unsupported(&what, "both must be one multiple of 16"));
            }
            let window = match attention.span {
                AttentionSpan::Window { tokens } => Some(tokens),
                _ => None,
            };
            let (kv_heads, head_dim) = (attention.kv_heads as usize, attention.key_dim as usize);
            let shape = KvShape { kv_heads, head_dim, block_tokens, format: KvFormat::F16 };
            let FeedForward::Gated { activation, .. } = layer.feed_forward else {
                return Err(unsupported("mixtures of experts", "use a dense model"));
            };
            let activation = match activation {
                Described::Silu => Activation::Silu,
                Described::GeluTanh => Activation::GeluTanh,
                _ => return Err(unsupported("its activation", "SiLU and GELU are served")),
            };
            let scale = match attention.rope.scaling {
                RopeScaling::None => 1.0,
                RopeScaling::Linear { factor } => 1.0 / factor,
                _ => return Err(unsupported("YaRN positions", "use a file without rope.scaling.type = yarn")),
            };
            let rope = Rope {
                dims: attention.rope.dims as usize,
                base: attention.rope.base,
                scale,
                factors: factors.clone().filter(|_| attention.rope.freq_factors),
                style: match attention.rope.layout {
                    RopeLayout::Interleaved => RopeStyle::Interleaved,
                    _ => RopeStyle::Halves,
                },
            };
            let known = arch.ropes.iter().position(|known| *known == rope);
            let params = AttentionParams {
                heads: attention.heads as usize,
                scale: attention.scale,
                window,
                softcap: attention.softcap,
            };
            arch.layers.push(LayerArch {
                // Its pool and its place there are chosen when all layers are known.
                group: Group::Global,
                kv: KvLayer { shape, base: 0, low: KvFormat::F16, low_base: 0, ring_base: 0, params },
                rope: known.unwrap_or(arch.ropes.len()),
                qk_norm: attention.qk_norm,
                activation,
            });
            if known.is_none() {
                arch.ropes.push(rope);
            }
        }
        arch.place_caches()?;
        Ok(arch)
    }

    /// Layers `layers` as a model of their own: what one of two devices runs. `ends` says whether it has the embedding, the
    /// last norm and the head too.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] when a size overflows.
    pub(crate) fn part(&self, layers: Range<usize>, ends: bool) -> Result<Self, EngineError> {
        let mut part = self.clone();
        part.first = self.first + layers.start;
        part.layers = self.layers[layers.clone()].to_vec();
        part.weights.layers = self.weights.layers[layers].to_vec();
        part.weights.ends = ends;
        part.place_caches()?;
        Ok(part)
    }

    /// The same with these element types of keys and values; those that gain from it hold rotated rows, if `rotates`.
    ///
    /// # Errors
    /// [`EngineError::Setting`] names a layer whose heads a type cannot hold, and a layer that there is not.
    pub(crate) fn with_kv_types(mut self, types: &KvTypes, rotates: bool) -> Result<Self, EngineError> {
        types.check()?;
        let (count, last) = (self.layers.len(), types.layers.iter().map(|(layers, _)| *layers.end()).max());
        if let Some(last) = last.filter(|last| *last >= count) {
            let remedy = format!("the model has layers 0 to {}", count - 1);
            return Err(EngineError::Setting { name: "kv-type-layers", value: last.to_string(), remedy });
        }
        for (index, layer) in self.layers.iter_mut().enumerate() {
            let (dtype, dim) = (types.of(index), layer.kv.shape.head_dim);
            let format = format_of(dtype, rotates).unwrap_or(KvFormat::F16);
            if !dim.is_multiple_of(format.granule()) {
                return Err(no_whole_granules(index, dtype, dim as u64, format.granule() as u64));
            }
            if dim > format.most() {
                let remedy = format!(
                    "heads of layer {index} have {dim} elements, and {dtype} is served up to {}: keep that layer f16 with --kv-type-layers",
                    format.most()
                );
                return Err(EngineError::Setting { name: "kv-type", value: types.to_string(), remedy });
            }
            layer.kv.shape.format = format;
        }
        self.place_caches()?;
        Ok(self)
    }

    /// The same with keys and values whose scales are f32.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] when a size overflows.
    #[cfg(feature = "cuda")]
    pub(crate) fn with_wide_scales(mut self) -> Result<Self, EngineError> {
        self.wide_scales = true;
        self.place_caches()?;
        Ok(self)
    }

    /// Gives every layer its pool, and its place in that pool's blocks.
    fn place_caches(&mut self) -> Result<(), EngineError> {
        // Where every layer slides there is nothing that keeps the whole context; such layers are served from one pool.
        let any_global = self.layers.iter().any(|layer| layer.kv.params.window.is_none());
        self.window = 0;
        for layer in &mut self.layers {
            let window = layer.kv.params.window.filter(|_| any_global);
            layer.group = if window.is_some() { Group::Window } else { Group::Global };
            self.window = self.window.max(window.unwrap_or(0) as usize);
        }
        self.global_units = self.place(Group::Global, |kv| (kv.shape.format, &mut kv.base))?;
        self.window_units = self.place(Group::Window, |kv| (kv.shape.format, &mut kv.base))?;
        Ok(())
    }

    /// Lays the layers of a group out in a block, layer after layer. How many units a block has.
    fn place(
        &mut self,
        group: Group,
        of: impl Fn(&mut KvLayer) -> (KvFormat, &mut usize),
    ) -> Result<usize, EngineError> {
        let (first, tokens, wide) = (self.first, Tokens::new(self.block_tokens as u64), self.wide_scales);
        let mut members: Vec<_> =
            self.layers.iter_mut().enumerate().filter(|(_, layer)| layer.group == group).collect();
        let priced = |(_, layer): &mut (usize, &mut LayerArch)| {
            let KvShape { kv_heads, head_dim, .. } = layer.kv.shape;
            let dtype = match dtype_of(of(&mut layer.kv).0) {
                KvDtype::Fp8Head if wide => KvDtype::Fp8Head32,
                dtype => dtype,
            };
            PricedLayer::heads(kv_heads as u64, head_dim as u64, dtype)
        };
        let priced: Vec<PricedLayer> = members.iter_mut().map(priced).collect();
        let layout = BlockLayout::new(&priced, tokens).map_err(|error| match error {
            LayoutError::Granule { layer, dtype, dim, of } => {
                no_whole_granules(first + members[layer].0, dtype, dim, of)
            }
            _ => unsupported("its KV heads", "their size overflows"),
        })?;
        let units = |bytes: memtier::Bytes| {
            let units = usize::try_from(bytes.count() / 2);
            units.map_err(|_| unsupported("its KV heads", "their size overflows"))
        };
        for (index, (_, layer)) in members.iter_mut().enumerate() {
            let start = layout.layer(index).map_or(memtier::Bytes::ZERO, |range| range.start);
            *of(&mut layer.kv).1 = units(start)?;
        }
        units(layout.block_bytes())
    }

    /// The same with a pool of smaller elements beside the global one.
    ///
    /// # Errors
    /// [`EngineError::Setting`] for heads that it has no room for.
    pub(crate) fn with_low(mut self, dtype: KvDtype, rotates: bool) -> Result<Self, EngineError> {
        let refused = |remedy: String| EngineError::Setting { name: "kv-low", value: dtype.to_string(), remedy };
        let format = format_of(dtype, rotates).ok_or_else(|| refused("use fp8, q8_0, nvfp4 or q4_0".to_owned()))?;
        for layer in &mut self.layers {
            layer.kv.low = format;
        }
        let heads = |dim: usize| dim > format.most() || !dim.is_multiple_of(format.granule());
        let wide = self.layers.iter().any(|layer| heads(layer.kv.shape.head_dim));
        let placed = self.place(Group::Global, |kv| (kv.low, &mut kv.low_base));
        self.low_units =
            placed.map_err(|_| refused("its heads do not fit the model's: leave out --kv-low".to_owned()))?;
        if wide || self.low_units >= self.global_units {
            return Err(refused(
                "it must be smaller than --kv-type, and hold the model's heads: leave it out".to_owned(),
            ));
        }
        Ok(self)
    }

    /// The same with rings of the `latest` tokens in f16.
    ///
    /// # Errors
    /// [`EngineError::Setting`] where no layer rounds.
    pub(crate) fn with_ring(mut self, latest: usize) -> Result<Self, EngineError> {
        let overflow = || unsupported("its rings", "their size overflows: use a smaller --kv-residual");
        let tokens = latest.checked_add(RING_TILE).ok_or_else(overflow)?.next_multiple_of(16);
        let mut units = 0usize;
        for layer in self.layers.iter_mut().filter(|layer| layer.has_ring()) {
            layer.kv.ring_base = units;
            let ring = KvShape { block_tokens: tokens, format: KvFormat::F16, ..layer.kv.shape };
            units = ring.block_units().and_then(|of| units.checked_add(of)).ok_or_else(overflow)?;
        }
        if units == 0 {
            let remedy =
                "keys and values over the whole context are f16 as it is: leave it out, or use a smaller --kv-type";
            return Err(EngineError::Setting {
                name: "kv-residual",
                value: latest.to_string(),
                remedy: remedy.to_owned(),
            });
        }
        self.ring = Some(RingArch { latest, tokens, units });
        Ok(self)
    }

    /// The rows of the output head: the vocabulary.
    pub fn vocab(&self) -> usize {
        self.weights.vocab
    }

    /// The same, with room for `snapshots` copies of a window at the end of cached prefixes.
    #[must_use]
    pub fn with_snapshots(mut self, snapshots: usize) -> Self {
        self.window_snapshots = if self.window == 0 { 0 } else { snapshots };
        self
    }

    /// Blocks that one sequence of the window pool holds at most while passes of one token are made.
    pub fn window_blocks(&self) -> usize {
        // The window can begin anywhere in a block.
        if self.window == 0 { 0 } else { self.window.div_ceil(self.block_tokens) + 1 }
    }
}

impl LayerArch {
    /// Whether its latest tokens are in rings, where there are any: it attends over everything, and rounds.
    pub fn has_ring(&self) -> bool {
        self.group == Group::Global && self.kv.shape.format != KvFormat::F16
    }
}

/// Elements that share a scale would be those of two heads.
fn no_whole_granules(layer: usize, dtype: KvDtype, dim: u64, of: u64) -> EngineError {
    let remedy = format!(
        "heads of layer {layer} have {dim} elements, no multiple of {of}: use f16, bf16 or fp8, for that layer with --kv-type-layers"
    );
    EngineError::Setting { name: "kv-type", value: dtype.to_string(), remedy }
}

fn unsupported(what: &str, why: &'static str) -> EngineError {
    EngineError::Unsupported { what: what.to_owned(), why }
}

/// The tensor of a matrix and its format.
pub(crate) fn matrix<'f>(file: &'f ModelFile, name: &str) -> Result<(&'f TensorInfo, &'f [u8], Format), EngineError> {
    let missing =
        || EngineError::Unsupported { what: format!("a model without `{name}`"), why: "the file is incomplete" };
    let (tensor, bytes) = file.tensor(name).ok_or_else(missing)?;
    let format = Format::from_ggml_type(tensor.tensor_type.id());
    let format = format.ok_or_else(|| EngineError::Unsupported {
        what: format!("`{name}` in the format {:?}", tensor.tensor_type),
        why: "use a file quantised to Q4_0 to Q6_K, Q8_0, F16, BF16 or F32",
    })?;
    Ok((tensor, bytes, format))
}

/// Names of a layer's matrices, in the order of [`LayerDims::formats`].
pub(crate) const MATRICES: [&str; 7] = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

fn weight_dims(file: &ModelFile, model: &ModelDescription) -> Result<WeightDims, EngineError> {
    let stored = |name: &str| matrix(file, name).map(|(_, _, format)| WeightFormat::Packed(format));
    let embed = stored("token_embd.weight")?;
    let head = if model.tied_embeddings { None } else { Some(stored("output.weight")?) };
    let hidden = model.hidden_size as usize;
    let mut layers = Vec::with_capacity(model.layers.len());
    for layer in &model.layers {
        let mut formats = [embed; 7];
        for (format, name) in formats.iter_mut().zip(MATRICES) {
            *format = stored(&format!("blk.{}.{name}.weight", layer.index))?;
        }
        let attention =
            layer.attention().ok_or_else(|| unsupported("a layer that does not attend", "use a dense model"))?;
        let FeedForward::Gated { size, .. } = layer.feed_forward else {
            return Err(unsupported("mixtures of experts", "use a dense model"));
        };
        let head_dim = attention.key_dim as usize;
        layers.push(LayerDims {
            hidden,
            q_rows: attention.heads as usize * head_dim,
            kv_rows: attention.kv_heads as usize * head_dim,
            ffn: size as usize,
            qk_norm: if attention.qk_norm { head_dim } else { 1 },
            post_norm: if model.norm_placement == NormPlacement::PreAndPost { hidden } else { 1 },
            formats,
        });
    }
    Ok(WeightDims { hidden, vocab: model.vocab_size as usize, embed, head, layers, ropes: Vec::new(), ends: true })
}

fn rope_factors(file: &ModelFile) -> Result<Option<Arc<[f32]>>, EngineError> {
    let Some((tensor, bytes)) = file.tensor("rope_freqs.weight") else { return Ok(None) };
    let format = Format::from_ggml_type(tensor.tensor_type.id()).filter(|format| format.is_float());
    let format =
        format.ok_or_else(|| unsupported("quantised rope_freqs.weight", "it is F32 in every file that is known"))?;
    let mut factors = vec![0.0; tensor.shape.row() as usize];
    dequantize_raw_row(format, bytes, &mut factors)?;
    Ok(Some(factors.into()))
}
