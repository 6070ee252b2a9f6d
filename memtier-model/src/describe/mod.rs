//! What an architecture's hyperparameters mean, layer by layer.
//!
//! [`ModelDescription::from_gguf`] resolves a file's metadata into one description that does not depend on the
//! architecture any more: each layer says how it attends, how far, with which heads and which rotary embedding. What
//! files leave out (key lengths, window patterns, local rope bases) is filled in here, from the architecture's own
//! file under `arch/`, and the tensors that the architecture requires are checked against the result.
//!
//! To add an architecture: one file under `arch/` with a `describe` function, and one line in its table.

mod arch;
mod error;
mod hparams;
mod layer;
mod requirements;

pub use error::{DescribeError, TensorProblem};
pub use layer::{
    Activation, Attention, AttentionSpan, FeedForward, Layer, LayerKind, NormPlacement, Rope, RopeLayout, RopeScaling,
};

use crate::gguf::Gguf;

/// A model's hyperparameters, resolved. Sizes are in elements, lengths in tokens.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModelDescription {
    /// `general.architecture`.
    pub architecture: Architecture,
    /// `general.name`, when the file has one.
    pub name: Option<String>,
    /// Tokens of the vocabulary: rows of the embedding.
    pub vocab_size: u32,
    /// Elements of the residual stream.
    pub hidden_size: u32,
    /// Tokens that the model was trained to attend over.
    pub context_length: u32,
    /// The epsilon of the RMS norms.
    pub norm_eps: f32,
    /// Where a layer has its norms.
    pub norm_placement: NormPlacement,
    /// What embeddings are multiplied with after the look-up; 1 where the architecture does not scale.
    pub embedding_scale: f32,
    /// Whether the output projection is the embedding, stored once.
    pub tied_embeddings: bool,
    /// Final logits `x` become `cap * tanh(x / cap)`.
    pub logit_softcap: Option<f32>,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
}

/// The architectures that can be described.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Architecture {
    /// Llama 1 to 3, Mistral, SmolLM and what else converts to `llama`, dense.
    Llama,
    /// Gemma 3.
    Gemma3,
}

impl Architecture {
    /// The name in `general.architecture`, which also begins the architecture's keys.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Llama => "llama",
            Architecture::Gemma3 => "gemma3",
        }
    }
}

impl ModelDescription {
    /// Describes a model, and checks that it has the tensors that its architecture requires in the shapes that its
    /// hyperparameters ask for.
    ///
    /// # Errors
    /// [`DescribeError`]: an architecture not known here, a key that is missing, of the wrong type or out of range, a
    /// feature that is not described yet, or tensors that are missing or of another shape (all of them in one error).
    pub fn from_gguf(model: &Gguf<'_>) -> Result<ModelDescription, DescribeError> {
        let name = model.metadata().str("general.architecture")?;
        arch::find(name)?(model)
    }

    /// Elements of key and value that one token adds to the caches of all layers that keep it: those that attend
    /// over everything, and of those with a window the ones whose window has not slid past it yet.
    pub fn kv_elements_per_token(&self) -> u64 {
        self.layers.iter().map(Layer::kv_elements_per_token).sum()
    }
}
