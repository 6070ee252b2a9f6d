//! Architectures whose layers all attend to everything before them, each with its own key-value heads.
//!
//! Mistral 7B v0.1 and Phi-3 state windows that engines do not apply (Phi's because converters fill the key wrongly), so
//! a window in such a file is not a smaller cache.

use super::common::Common;
use crate::layout::LayerMemory;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;

/// As in `general.architecture`. Mistral and Mixtral files say `llama`.
pub(super) const NAMES: [&str; 49] = [
    "apertus",
    "arcee",
    "arctic",
    "baichuan",
    "bailingmoe",
    "bailingmoe2",
    "bloom",
    "chatglm",
    "command-r",
    "deci",
    "deepseek",
    "dots1",
    "ernie4_5",
    "ernie4_5-moe",
    "exaone",
    "falcon",
    "gemma",
    "glm4",
    "glm4moe",
    "gpt2",
    "gptneox",
    "granite",
    "granitemoe",
    "hunyuan-dense",
    "hunyuan-moe",
    "internlm2",
    "llama",
    "minicpm",
    "minicpm3",
    "minimax-m2",
    "mistral3",
    "mpt",
    "nemotron",
    "olmo",
    "olmoe",
    "openelm",
    "orion",
    "phi2",
    "phi3",
    "phimoe",
    "qwen2",
    "qwen2moe",
    "qwen2vl",
    "qwen3",
    "qwen3moe",
    "qwen3vl",
    "qwen3vlmoe",
    "smollm3",
    "stablelm",
];

pub(super) fn full(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    if common.heads.iter().all(|&heads| heads == 0) {
        return Err(facts.missing("attention.head_count"));
    }
    Ok(common.all_attending())
}
