//! Where a tensor belongs, by its name.

/// A tensor and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Weight {
    /// Its name in the file.
    pub name: String,
    /// Bytes of its data.
    pub bytes: u64,
    /// Which part of the model needs it.
    pub place: Place,
    /// How it is divided when several devices compute one layer together.
    pub share: Share,
}

impl Weight {
    /// A tensor of the language model or its tower, placed by its name. `layers` is how many layers are not drafts.
    pub(crate) fn new(name: String, bytes: u64, layers: u64) -> Weight {
        let (place, share) = classify(&name, layers);
        Weight { name, bytes, place, share }
    }
}

/// Which part of a model needs a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Place {
    /// The look-up of tokens. With tied embeddings it is the output projection too.
    Embedding,
    /// A layer of the model proper.
    Layer(u32),
    /// The norm and the projection after the last layer.
    Output,
    /// What only drafts.
    Draft,
    /// The vision (or audio) tower and its projector.
    Vision,
}

/// How a tensor is divided when several devices compute one layer together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Share {
    /// By heads: projections of queries, keys, values, and what follows attention.
    Heads,
    /// By columns or rows: feed-forward projections.
    Columns,
    /// By experts.
    Experts,
    /// By rows of the vocabulary.
    Vocabulary,
    /// Not at all: norms, routers, biases and latents are needed whole everywhere.
    Whole,
}

/// Parts of names that belong to a tower, whatever layers it has of its own.
const TOWERS: [&str; 9] = [
    "visual.",
    "vision_tower.",
    "vision_model.",
    "vision_embed",
    "embed_vision",
    "multi_modal_projector.",
    "audio_tower.",
    "embed_audio",
    "vision_encoder.",
];

/// The place and the share of a tensor. Knows GGUF's names and those of checkpoints.
pub(crate) fn classify(name: &str, layers: u64) -> (Place, Share) {
    let tower = name.starts_with("v.") || name.starts_with("mm.") || name.starts_with("a.");
    if tower || TOWERS.iter().any(|part| name.contains(part)) {
        return (Place::Vision, Share::Whole);
    }
    if name.starts_with("mtp.") || name.contains(".mtp.") {
        return (Place::Draft, share_in_layer(name));
    }
    if let Some(layer) = layer_of(name) {
        return if layer < layers && layer <= u64::from(u32::MAX) {
            (Place::Layer(layer as u32), share_in_layer(name))
        } else {
            (Place::Draft, share_in_layer(name))
        };
    }
    let is = |stems: &[&str]| stems.iter().any(|stem| name.contains(stem));
    if is(&["token_embd.weight", "embed_tokens", "wte.", "word_embeddings", "backbone.embeddings", "token_embeddings"])
    {
        (Place::Embedding, Share::Vocabulary)
    } else if is(&["lm_head.", "embed_out."]) || name == "output.weight" {
        (Place::Output, Share::Vocabulary)
    } else {
        (Place::Output, Share::Whole)
    }
}

/// The number after `blk.`, `layers.` or `h.`.
fn layer_of(name: &str) -> Option<u64> {
    let mut parts = name.split('.');
    while let Some(part) = parts.next() {
        if matches!(part, "blk" | "layers" | "h" | "blocks") {
            return parts.next()?.parse().ok();
        }
    }
    None
}

fn share_in_layer(name: &str) -> Share {
    let is = |stems: &[&str]| stems.iter().any(|stem| name.contains(stem));
    if is(&["_norm", "norm.", "layernorm", "ffn_gate_inp", ".mlp.gate.", ".bias", "rope_freqs", "indexer"]) {
        // What holds one value an element of the residual stream, routers, and the index of sparse attention.
        Share::Whole
    } else if is(&["attn_q_a", "attn_kv_a", "q_a_proj", "kv_a_proj", "per_layer_"]) {
        // Latents are shared by all heads.
        Share::Whole
    } else if is(&["_exps", ".experts."]) {
        Share::Experts
    } else if is(&["attn", "ssm", "shortconv", "mamba", "mixer"]) {
        Share::Heads
    } else if is(&["ffn", "mlp", "feed_forward"]) {
        Share::Columns
    } else {
        Share::Whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_formats_find_their_place() {
        let rows = [
            ("token_embd.weight", Place::Embedding, Share::Vocabulary),
            ("per_layer_token_embd.weight", Place::Embedding, Share::Vocabulary),
            ("output.weight", Place::Output, Share::Vocabulary),
            ("output_norm.weight", Place::Output, Share::Whole),
            ("blk.3.attn_q.weight", Place::Layer(3), Share::Heads),
            ("blk.3.attn_norm.weight", Place::Layer(3), Share::Whole),
            ("blk.3.attn_kv_a_mqa.weight", Place::Layer(3), Share::Whole),
            ("blk.3.ffn_down_exps.weight", Place::Layer(3), Share::Experts),
            ("blk.3.ffn_gate_inp.weight", Place::Layer(3), Share::Whole),
            ("blk.4.ffn_up.weight", Place::Draft, Share::Columns),
            ("v.blk.0.attn_q.weight", Place::Vision, Share::Whole),
            ("mm.0.weight", Place::Vision, Share::Whole),
            ("model.layers.2.mlp.experts.7.up_proj.weight", Place::Layer(2), Share::Experts),
            ("model.language_model.layers.2.self_attn.q_proj.weight", Place::Layer(2), Share::Heads),
            ("model.layers.4.embed_tokens.weight", Place::Draft, Share::Whole),
            ("backbone.layers.1.mixer.in_proj.weight", Place::Layer(1), Share::Heads),
            ("model.visual.blocks.3.attn.qkv.weight", Place::Vision, Share::Whole),
            ("mtp.layers.0.mlp.up_proj.weight", Place::Draft, Share::Columns),
            ("lm_head.weight", Place::Output, Share::Vocabulary),
            ("model.embed_tokens.weight", Place::Embedding, Share::Vocabulary),
        ];
        for (name, place, share) in rows {
            assert_eq!(classify(name, 4), (place, share), "{name}");
        }
    }

    #[test]
    fn absurd_numbers_are_no_layers() {
        assert_eq!(classify("blk.99999999999999999999.attn_q.weight", 4).0, Place::Output);
        assert_eq!(classify("blk.4294967296.attn_q.weight", u64::MAX).0, Place::Draft);
    }
}
