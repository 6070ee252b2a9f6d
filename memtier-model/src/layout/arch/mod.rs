//! How the layers of an architecture attend and recur: one file per family, and the table that finds it.

mod cohere;
mod common;
mod deepseek;
mod exaone;
mod falcon_h1;
mod full;
mod gemma;
mod glm;
mod gpt_oss;
mod jamba;
mod kimi;
mod lfm2;
mod llama4;
mod mamba;
mod nemotron;
mod olmo;
mod qwen_next;
mod smallthinker;
mod unknown;

use common::Common;

use super::error::{LayoutError, LayoutWarning};
use super::facts::Facts;
use super::weights::{Place, Weight};
use super::{Experts, LayerMemory, ModelLayout};

/// Lays out all layers of a file, drafts among them.
type Rule = fn(&Facts<'_>, &Common) -> Result<Vec<LayerMemory>, LayoutError>;

/// Architectures that need more than [`full`]: names as in `general.architecture`.
const TABLE: &[(&str, Rule)] = &[
    ("afmoe", olmo::olmo2),
    ("cohere2", cohere::cohere2),
    ("deepseek2", deepseek::latent),
    ("deepseek2-ocr", deepseek::latent),
    ("deepseek32", deepseek::sparse),
    ("exaone4", exaone::exaone4),
    ("falcon-h1", falcon_h1::falcon_h1),
    ("gemma2", gemma::gemma2),
    ("gemma3", gemma::gemma3),
    ("gemma3n", gemma::gemma3n),
    ("gemma4", gemma::gemma4),
    ("glm-dsa", glm::dsa),
    ("gpt-oss", gpt_oss::gpt_oss),
    ("granitehybrid", jamba::by_heads),
    ("jamba", jamba::by_heads),
    ("kimi-linear", kimi::kimi_linear),
    ("lfm2", lfm2::lfm2),
    ("lfm2moe", lfm2::lfm2),
    ("llama4", llama4::llama4),
    ("mamba", mamba::mamba),
    ("mamba2", mamba::mamba),
    ("nemotron_h", nemotron::nemotron_h),
    ("nemotron_h_moe", nemotron::nemotron_h),
    ("olmo2", olmo::olmo2),
    ("qwen35", qwen_next::hybrid),
    ("qwen35moe", qwen_next::hybrid),
    ("qwen3next", qwen_next::hybrid),
    ("smallthinker", smallthinker::smallthinker),
];

/// Every architecture that is known, as `general.architecture` names it.
pub fn known_architectures() -> impl Iterator<Item = &'static str> {
    full::NAMES.iter().copied().chain(TABLE.iter().map(|entry| entry.0))
}

/// The layers of a model, before its weights are known.
pub(crate) struct Stack {
    layers: Vec<LayerMemory>,
    draft_layers: Vec<LayerMemory>,
    experts: Experts,
    warnings: Vec<LayoutWarning>,
}

/// Lays out the layers.
///
/// # Errors
/// As [`ModelLayout::from_gguf`].
pub(crate) fn lay_out(facts: &Facts<'_>) -> Result<Stack, LayoutError> {
    let common = Common::read(facts)?;
    let mut warnings = Vec::new();
    let rule = TABLE.iter().find(|entry| entry.0 == facts.architecture).map(|entry| entry.1);
    let mut layers = match rule {
        Some(rule) => rule(facts, &common)?,
        None if full::NAMES.contains(&facts.architecture) => full::full(facts, &common)?,
        None => unknown::unknown(facts, &common, &mut warnings)?,
    };
    let draft_layers = layers.split_off(common.blocks - common.drafts);
    Ok(Stack { layers, draft_layers, experts: common.experts, warnings })
}

impl Stack {
    pub(crate) fn into_layout(
        self,
        architecture: &str,
        name: Option<String>,
        vocab_size: u64,
        hidden_size: u64,
        context_length: Option<u64>,
        weights: Vec<Weight>,
    ) -> ModelLayout {
        ModelLayout {
            architecture: architecture.to_owned(),
            name,
            vocab_size,
            hidden_size,
            context_length,
            layers: self.layers,
            draft_layers: self.draft_layers,
            experts: self.experts,
            // A tower inside the file itself, as checkpoints have it.
            vision: weights.iter().any(|weight| weight.place == Place::Vision).then(|| super::Vision {
                bytes: weights
                    .iter()
                    .filter(|w| w.place == Place::Vision)
                    .map(|w| w.bytes)
                    .fold(0, u64::saturating_add),
                ..super::Vision::default()
            }),
            weights,
            adapters: Vec::new(),
            warnings: self.warnings,
        }
    }
}
