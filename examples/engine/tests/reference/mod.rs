//! The plain f32 path that the fast engine is held to, layer by layer: dequantised weights, one loop after the other,
//! no cleverness. It shares no code with the engine or its kernels; only the file reader and the description of the
//! model are common to both.
//!
//! Threads split the rows of a product, which changes no sum; everything else is sequential.
#![allow(
    unreachable_pub,
    dead_code,
    unused_imports,
    reason = "a module of tests has no outside, and each test uses a part of it"
)]

mod activations;
mod attention;
mod dequant;
mod half;
mod ops;
mod weights;

use std::path::Path;

use memtier_model::describe::{Activation, FeedForward, Layer, NormPlacement};
use memtier_model::{Gguf, ModelDescription};

use attention::Cache;
pub use dequant::dequantise;
pub use ops::log_softmax;
use weights::{LayerWeights, Weights};

/// What the key-value cache keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvPrecision {
    /// Keys and values as computed.
    F32,
    /// Rounded to f16, as llama.cpp's default cache.
    F16,
}

/// What vectors are when they meet a quantised matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activations {
    /// As computed.
    F32,
    /// Rounded to 8 bits a block, as llama.cpp rounds them for the matrix's type: integer products need that. What
    /// this changes is the part of llama.cpp's noise that comes of it.
    Rounded,
}

/// Which tokens' logits are wanted: they cost more than a layer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitsOf {
    /// Of the last token.
    Last,
    /// Of all tokens from this index of the call's tokens on.
    From(usize),
}

/// A model with its weights in f32.
pub struct Reference {
    pub description: ModelDescription,
    weights: Weights,
}

/// What a call computed. Rows are tokens.
pub struct Output {
    /// The residual stream: after the embedding (index 0), then after each layer; `hidden_size` elements a token.
    pub hidden: Vec<Vec<f32>>,
    /// Logits of the tokens asked for, `vocab_size` elements each.
    pub logits: Vec<Vec<f32>>,
}

impl Reference {
    /// Reads and dequantises a model: four bytes a parameter.
    pub fn open(path: &Path) -> Reference {
        Reference::open_with(path, Activations::F32)
    }

    /// As [`open`](Self::open), with the activations of products rounded.
    pub fn open_with(path: &Path, activations: Activations) -> Reference {
        let model = Gguf::open(path).expect("the model opens");
        let description = ModelDescription::from_gguf(&model).expect("the model is described");
        let weights = Weights::read(&model, &description, activations);
        Reference { description, weights }
    }

    /// A sequence that has no tokens yet.
    pub fn session(&self, precision: KvPrecision) -> Session<'_> {
        self.session_of(precision, None)
    }

    /// One whose tokens see the first `sinks` and the latest `window` only, at their places among these.
    pub fn streaming(&self, sinks: usize, window: usize) -> Session<'_> {
        self.session_of(KvPrecision::F32, Some((sinks, window)))
    }

    fn session_of(&self, precision: KvPrecision, streaming: Option<(usize, usize)>) -> Session<'_> {
        let caches = self.description.layers.iter().map(|_| Cache::new(precision, streaming)).collect();
        Session { model: self, caches, position: 0 }
    }
}

/// One sequence and its cache.
pub struct Session<'m> {
    model: &'m Reference,
    caches: Vec<Cache>,
    position: usize,
}

impl Session<'_> {
    /// Tokens so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Appends tokens to the sequence. The tokens may come one by one or together: the result is the same.
    pub fn extend(&mut self, ids: &[u32], logits_of: LogitsOf) -> Output {
        let Reference { description: model, weights } = self.model;
        let hidden_size = model.hidden_size as usize;
        let mut x: Vec<f32> = ids.iter().flat_map(|&id| weights.embedding.row(id as usize)).copied().collect();
        x.iter_mut().for_each(|value| *value *= model.embedding_scale);

        let mut hidden = vec![x.clone()];
        for ((layer, weights), cache) in model.layers.iter().zip(&weights.layers).zip(&mut self.caches) {
            self::layer(model, layer, weights, cache, self.position, &mut x);
            hidden.push(x.clone());
        }
        self.position += ids.len();

        let first = match logits_of {
            LogitsOf::Last => ids.len() - 1,
            LogitsOf::From(first) => first,
        };
        let last = ops::rms_norm(&x[first * hidden_size..], &weights.output_norm, model.norm_eps);
        let logits = weights.output.as_ref().unwrap_or(&weights.embedding).times(&last);
        let logits = logits.chunks(model.vocab_size as usize).map(|row| softcap(row, model.logit_softcap)).collect();
        Output { hidden, logits }
    }
}

fn softcap(logits: &[f32], cap: Option<f32>) -> Vec<f32> {
    logits.iter().map(|&x| cap.map_or(x, |cap| cap * (x / cap).tanh())).collect()
}

/// One layer, in place on the residual stream.
fn layer(
    model: &ModelDescription,
    layer: &Layer,
    weights: &LayerWeights,
    cache: &mut Cache,
    position: usize,
    x: &mut [f32],
) {
    let eps = model.norm_eps;
    let normed = ops::rms_norm(x, &weights.attn_norm, eps);
    let attention = layer.attention().expect("both architectures attend in every layer");
    let mut mixed = attention::attend(attention, weights, cache, position, &normed, eps);
    if model.norm_placement == NormPlacement::PreAndPost {
        mixed = ops::rms_norm(&mixed, weights.post_attention_norm.as_ref().expect("checked"), eps);
    }
    ops::add(x, &mixed);

    let normed = ops::rms_norm(x, &weights.ffn_norm, eps);
    let FeedForward::Gated { activation, .. } = layer.feed_forward else { panic!("a new kind of feed-forward") };
    let mut inner = weights.ffn_gate.times(&normed);
    for (gate, up) in inner.iter_mut().zip(weights.ffn_up.times(&normed)) {
        *gate = up
            * match activation {
                Activation::Silu => ops::silu(*gate),
                Activation::GeluTanh => ops::gelu_tanh(*gate),
                other => panic!("{other:?}"),
            };
    }
    let mut out = weights.ffn_down.times(&inner);
    if model.norm_placement == NormPlacement::PreAndPost {
        out = ops::rms_norm(&out, weights.post_ffw_norm.as_ref().expect("checked"), eps);
    }
    ops::add(x, &out);
}
