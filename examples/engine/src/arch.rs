//! What the forward pass needs to know of a model, resolved once from its description.

use std::{ops::Range, sync::Arc};

use engine_kernels::{Activation, AttentionParams, Format, KvShape, RopeStyle, dequantize_raw_row};
use memtier_model::describe::{
    Activation as Described, AttentionSpan, FeedForward, NormPlacement, RopeLayout, RopeScaling,
};
use memtier_model::{ModelDescription, TensorInfo};

use crate::{
    EngineError, ModelFile,
    ops::{KvLayer, Rope},
    weights::{LayerDims, WeightDims, WeightFormat},
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
    /// Elements of one block of the global pool, all its layers.
    pub global_elements: usize,
    /// Bytes of one block of the pool of eight bits an element, all its layers; 0 where there is none.
    pub low_bytes: usize,
    /// The first numbers, as many as blocks of the longest sequence: the table of a cache that was unpacked. Empty where
    /// there is none.
    pub low_ids: Arc<[u32]>,
    /// Elements of one block of the window pool, all its layers; 0 where no layer has a window.
    pub window_elements: usize,
    /// The window, in tokens; 0 where no layer has one.
    pub window: usize,
    /// Copies of a window that are kept at the end of cached prefixes.
    pub window_snapshots: usize,
    /// Blocks of a second tier for cached prefixes; 0 where there is none.
    pub cold_blocks: usize,
    /// Copies of a window beside that tier.
    pub cold_snapshots: usize,
    /// The context the model was trained on.
    pub trained_context: u32,
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
            global_elements: 0,
            low_bytes: 0,
            low_ids: Arc::new([]),
            window_elements: 0,
            window: 0,
            window_snapshots: 0,
            cold_blocks: 0,
            cold_snapshots: 0,
            trained_context: model.context_length,
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
            let shape =
                KvShape { kv_heads: attention.kv_heads as usize, head_dim: attention.key_dim as usize, block_tokens };
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
                kv: KvLayer { shape, base: 0, low_base: 0, params },
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

    /// Gives every layer its pool, and its place in that pool's blocks.
    fn place_caches(&mut self) -> Result<(), EngineError> {
        // Where every layer slides there is nothing that keeps the whole context; such layers are served from one pool.
        let any_global = self.layers.iter().any(|layer| layer.kv.params.window.is_none());
        (self.global_elements, self.window_elements, self.window) = (0, 0, 0);
        for layer in &mut self.layers {
            let window = layer.kv.params.window.filter(|_| any_global);
            let elements = layer.kv.shape.block_elements();
            let elements = elements.ok_or_else(|| unsupported("its KV heads", "their size overflows"))?;
            let total = if window.is_some() { &mut self.window_elements } else { &mut self.global_elements };
            layer.kv.base = *total;
            *total += elements;
            layer.group = if window.is_some() { Group::Window } else { Group::Global };
            self.window = self.window.max(window.unwrap_or(0) as usize);
        }
        Ok(())
    }

    /// The same with a pool of eight bits an element beside the global one, for sequences of up to `blocks` blocks.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] for heads that it has no room for.
    pub(crate) fn with_low(mut self, blocks: usize) -> Result<Self, EngineError> {
        let refused = || unsupported("its KV heads in eight bits", "leave out --kv-low");
        self.low_bytes = 0;
        for layer in self.layers.iter_mut().filter(|layer| layer.group == Group::Global) {
            layer.kv.low_base = self.low_bytes;
            let bytes = layer.kv.low_bytes().filter(|_| layer.kv.has_low()).ok_or_else(refused)?;
            self.low_bytes = self.low_bytes.checked_add(bytes).ok_or_else(refused)?;
        }
        self.low_ids = (0..u32::try_from(blocks).map_err(|_| refused())?).collect();
        Ok(self)
    }

    /// Elements of one sequence's largest layer in f16: what is unpacked at a time.
    pub(crate) fn low_cache(&self) -> Option<usize> {
        let layers = self.layers.iter().filter(|layer| layer.group == Group::Global);
        let most = layers.filter_map(|layer| layer.kv.shape.block_elements()).max().unwrap_or(0);
        most.checked_mul(self.low_ids.len())
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
    Ok(WeightDims { hidden, vocab: model.vocab_size as usize, embed, head, layers, ends: true })
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
