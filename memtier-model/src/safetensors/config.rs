//! A `config.json` in the vocabulary of GGUF's keys, so that architectures are laid out in one place.

use serde_json::{Map, Value};

use super::names;
use crate::gguf::MetadataError;
use crate::layout::facts::{Canon, Canonical};
use crate::layout::{LayoutError, LayoutWarning, Vision};

/// What a configuration says.
pub(super) struct Translated<'c> {
    pub(super) architecture: &'c str,
    pub(super) canon: Canon,
    /// Layers that do not only draft.
    pub(super) layers: u64,
    pub(super) vocab: u64,
    pub(super) tied: bool,
    pub(super) vision: Option<Vision>,
    pub(super) warnings: Vec<LayoutWarning>,
}

/// The language model's part of a configuration.
struct Text<'c>(&'c Map<String, Value>);

impl<'c> Text<'c> {
    fn get(&self, names: &[&str]) -> Option<&'c Value> {
        names.iter().find_map(|name| self.0.get(*name).filter(|value| !value.is_null()))
    }

    fn number(&self, names: &[&str]) -> Option<u64> {
        self.get(names)?.as_u64()
    }

    fn list(&self, name: &str) -> Option<Vec<&'c str>> {
        self.get(&[name])?.as_array()?.iter().map(Value::as_str).collect()
    }

    fn on(&self, name: &str) -> Option<bool> {
        self.get(&[name])?.as_bool()
    }
}

/// Keys that mean the same everywhere, by GGUF's name and the names that configurations use.
const PLAIN: &[(&str, &[&str])] = &[
    ("embedding_length", &["hidden_size", "d_model", "n_embd"]),
    ("attention.head_count", &["num_attention_heads", "n_head"]),
    ("context_length", &["max_position_embeddings", "n_positions", "max_sequence_length"]),
    ("expert_count", &["num_local_experts", "num_experts", "n_routed_experts"]),
    ("expert_used_count", &["num_experts_per_tok", "top_k_experts"]),
    ("expert_feed_forward_length", &["moe_intermediate_size"]),
    ("attention.kv_lora_rank", &["kv_lora_rank"]),
    ("attention.indexer.key_length", &["index_head_dim"]),
    ("attention.shared_kv_layers", &["num_kv_shared_layers"]),
    ("attention.sliding_window_pattern", &["sliding_window_pattern", "_sliding_window_pattern"]),
    ("full_attention_interval", &["full_attention_interval"]),
    ("shortconv.l_cache", &["conv_L_cache"]),
    ("ssm.state_size", &["mamba_d_state", "ssm_state_size", "linear_key_head_dim", "state_size"]),
    ("ssm.conv_kernel", &["mamba_d_conv", "linear_conv_kernel_dim", "conv_kernel"]),
    ("ssm.group_count", &["mamba_n_groups", "linear_num_key_heads", "n_groups"]),
];

/// Translates.
///
/// # Errors
/// What a configuration of a language model cannot do without.
pub(super) fn translate(config: &Map<String, Value>) -> Result<Translated<'_>, LayoutError> {
    // Models with a tower keep the language model's part apart.
    let part = ["text_config", "llm_config", "language_config"].iter().find_map(|name| config.get(*name)?.as_object());
    let text = Text(part.unwrap_or(config));
    let missing = |key: &str| LayoutError::from(MetadataError::Missing { key: key.to_owned() });
    let model_type = text.get(&["model_type"]).or_else(|| config.get("model_type")).and_then(Value::as_str);
    let architecture = names::architecture(model_type.ok_or_else(|| missing("model_type"))?);

    let mut canon = Canon::default();
    let mut warnings = Vec::new();
    let layers = text
        .number(&["num_hidden_layers", "n_layer", "num_layers", "n_layers"])
        .ok_or_else(|| missing("num_hidden_layers"))?;
    let drafts = text.number(&["num_nextn_predict_layers", "mtp_num_hidden_layers"]).unwrap_or(0);
    let mut set = |name: &'static str, value: Option<u64>| {
        if let Some(value) = value {
            canon.values.insert(name, Canonical::One(value));
        }
    };
    set("block_count", Some(layers.saturating_add(drafts)));
    set("nextn_predict_layers", Some(drafts));
    for (name, names) in PLAIN {
        set(name, text.number(names));
    }
    let dim = text.number(&["head_dim", "attention_head_dim", "kv_channels"]);
    set("attention.key_length", dim);
    set("attention.value_length", dim);
    if text.on("use_sliding_window") != Some(false) {
        set("attention.sliding_window", text.number(&["sliding_window", "attention_chunk_size"]));
    }
    set("ssm.inner_size", inner_size(&text));
    latent(&text, &mut canon);
    lists(&text, &mut canon, layers);
    by_layer(architecture, &text, &mut canon, layers);
    if architecture == "llama" && canon.values.contains_key("attention.sliding_window") {
        // Mistral's first model states one, and engines disagree on whether it holds.
        if let Some(Canonical::One(window)) = canon.values.remove("attention.sliding_window") {
            warnings.push(LayoutWarning::WindowIgnored { window });
        }
    }
    let vocab = text.number(&["vocab_size"]).or_else(|| config.get("vocab_size")?.as_u64()).unwrap_or(0);
    let tied = text.on("tie_word_embeddings").or_else(|| config.get("tie_word_embeddings")?.as_bool());
    Ok(Translated {
        architecture,
        canon,
        layers,
        vocab: vocab.min(1 << 32),
        tied: tied.unwrap_or(false),
        vision: config.get("vision_config").and_then(Value::as_object).map(vision),
        warnings,
    })
}

/// The inner activation of recurrent layers: stated, from its heads, or a multiple of the hidden size.
fn inner_size(text: &Text<'_>) -> Option<u64> {
    let heads = |count: &str, dim: &str| text.number(&[count])?.checked_mul(text.number(&[dim])?);
    text.number(&["mamba_d_ssm"])
        .or_else(|| heads("linear_num_value_heads", "linear_value_head_dim"))
        .or_else(|| heads("mamba_num_heads", "mamba_head_dim"))
        .or_else(|| heads("mamba_n_heads", "mamba_d_head"))
        .or_else(|| text.number(&["mamba_expand", "expand"])?.checked_mul(text.number(&["hidden_size", "d_model"])?))
}

/// Multi-head latent attention: engines cache the latent.
fn latent(text: &Text<'_>, canon: &mut Canon) {
    let parts = [text.number(&["kv_lora_rank"]), text.number(&["qk_rope_head_dim"])];
    let [Some(rank), Some(rotary)] = parts else { return };
    let nope = text.number(&["qk_nope_head_dim"]).unwrap_or(0);
    for (name, value) in [
        ("attention.key_length", rank.saturating_add(rotary)),
        ("attention.key_length_mla", nope.saturating_add(rotary)),
        ("rope.dimension_count", rotary),
        ("attention.head_count_kv", 1),
    ] {
        canon.values.insert(name, Canonical::One(value));
    }
    if let Some(value) = text.number(&["v_head_dim"]) {
        canon.values.insert("attention.value_length_mla", Canonical::One(value));
    }
}

/// Values that may be one or a list: key-value heads and feed-forward sizes.
fn lists(text: &Text<'_>, canon: &mut Canon, layers: u64) {
    let mut set = |name: &'static str, names: &[&str]| {
        let value = match text.get(names) {
            Some(Value::Array(values)) => {
                values.iter().map(Value::as_u64).collect::<Option<Vec<_>>>().map(Canonical::Each)
            }
            Some(value) => value.as_u64().map(Canonical::One),
            None => None,
        };
        if let Some(value) = value {
            canon.values.entry(name).or_insert(value);
        }
    };
    set("attention.head_count_kv", &["num_key_value_heads", "num_kv_heads"]);
    set("feed_forward_length", &["intermediate_size", "ffn_dim", "d_ff"]);
    if let Some(kinds) = text.list("indexer_types").filter(|kinds| kinds.len() as u64 == layers) {
        let own = kinds.iter().map(|kind| u64::from(*kind == "full")).collect();
        canon.values.insert("attention.indexer.types", Canonical::Each(own));
    }
}

/// What differs by layer: windows, recurrent layers, layers without key-value heads.
fn by_layer(architecture: &str, text: &Text<'_>, canon: &mut Canon, layers: u64) {
    let mut kinds: Vec<Kind> = text.list("layer_types").unwrap_or_default().into_iter().map(Kind::of).collect();
    if let Some(pattern) = text.get(&["hybrid_override_pattern"]).and_then(Value::as_str) {
        kinds = pattern.chars().filter_map(Kind::of_letter).collect();
    }
    if let (Some(period), Some(offset)) = (text.number(&["attn_layer_period"]), text.number(&["attn_layer_offset"])) {
        let attends = |layer: u64| layer.checked_rem(period) == Some(offset);
        // A count beyond the reader's bound is refused there; here it must not be allocated.
        kinds = (0..layers.min(4096)).map(|layer| if attends(layer) { Kind::Full } else { Kind::Recurrent }).collect();
    }
    if let Some(full) = text.get(&["full_attn_idxs"]).and_then(Value::as_array) {
        let attends = |layer: u64| full.iter().any(|value| value.as_u64() == Some(layer));
        kinds = (0..layers.min(4096)).map(|layer| if attends(layer) { Kind::Full } else { Kind::Recurrent }).collect();
    }
    if kinds.is_empty() {
        return;
    }
    let flags = |is: Kind| Canonical::Each(kinds.iter().map(|&kind| u64::from(kind == is)).collect());
    if kinds.contains(&Kind::Windowed) {
        canon.values.insert("attention.sliding_window_pattern", flags(Kind::Windowed));
    }
    if kinds.contains(&Kind::Recurrent) {
        canon.values.insert("attention.recurrent_layers", flags(Kind::Recurrent));
        heads_where_attended(canon, &kinds);
    }
    if kinds.contains(&Kind::FeedForward) || architecture == "nemotron_h" {
        // Such a layer is its feed-forward and nothing else.
        let size = match canon.values.get("feed_forward_length") {
            Some(Canonical::One(size)) => *size,
            _ => 0,
        };
        let sizes = kinds.iter().map(|&kind| if kind == Kind::FeedForward { size } else { 0 }).collect();
        canon.values.insert("feed_forward_length", Canonical::Each(sizes));
    }
    if let Some(global) = text.number(&["global_head_dim"]) {
        global_heads(text, canon, &kinds, global);
    }
}

/// Gemma 4: layers without a window have heads of their own size and number.
fn global_heads(text: &Text<'_>, canon: &mut Canon, kinds: &[Kind], global: u64) {
    if let Some(dim) = text.number(&["head_dim"]) {
        canon.values.insert("attention.key_length_swa", Canonical::One(dim));
        canon.values.insert("attention.value_length_swa", Canonical::One(dim));
    }
    canon.values.insert("attention.key_length", Canonical::One(global));
    canon.values.insert("attention.value_length", Canonical::One(global));
    let windowed = text.number(&["num_key_value_heads"]);
    if let (Some(windowed), Some(all)) = (windowed, text.number(&["num_global_key_value_heads"])) {
        let heads = kinds.iter().map(|&kind| if kind == Kind::Windowed { windowed } else { all }).collect();
        canon.values.insert("attention.head_count_kv", Canonical::Each(heads));
    }
}

fn heads_where_attended(canon: &mut Canon, kinds: &[Kind]) {
    let attends = |kind: Kind| matches!(kind, Kind::Full | Kind::Windowed);
    let heads = match canon.values.get("attention.head_count_kv") {
        Some(Canonical::Each(heads)) if heads.len() == kinds.len() => heads.clone(),
        Some(Canonical::One(heads)) => vec![*heads; kinds.len()],
        _ => match canon.values.get("attention.head_count") {
            Some(Canonical::One(heads)) => vec![*heads; kinds.len()],
            _ => return,
        },
    };
    let heads = heads.into_iter().zip(kinds).map(|(heads, &kind)| if attends(kind) { heads } else { 0 }).collect();
    canon.values.insert("attention.head_count_kv", Canonical::Each(heads));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Full,
    Windowed,
    Recurrent,
    FeedForward,
}

impl Kind {
    fn of(name: &str) -> Kind {
        match name {
            "sliding_attention" | "chunked_attention" => Kind::Windowed,
            "linear_attention" | "mamba" | "conv" | "recurrent" => Kind::Recurrent,
            "mlp" | "moe" => Kind::FeedForward,
            _ => Kind::Full,
        }
    }

    fn of_letter(letter: char) -> Option<Kind> {
        match letter {
            'M' => Some(Kind::Recurrent),
            '*' => Some(Kind::Full),
            '-' | 'E' => Some(Kind::FeedForward),
            _ => None,
        }
    }
}

fn vision(config: &Map<String, Value>) -> Vision {
    let text = Text(config);
    let number = |names: &[&str]| text.number(names).unwrap_or(0).min(1 << 20);
    Vision {
        image: number(&["image_size"]),
        patch: number(&["patch_size"]),
        hidden: number(&["hidden_size", "embed_dim"]),
        feed_forward: number(&["intermediate_size"]),
        heads: number(&["num_attention_heads", "num_heads"]),
        ..Vision::default()
    }
}
