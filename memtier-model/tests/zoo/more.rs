//! Published models of further architectures.

use memtier_model::TensorType;

use super::Model;
use super::models::Dense;

fn name(layer: u64, tensor: &str) -> String {
    format!("blk.{layer}.{tensor}.weight")
}

/// Qwen 2.5: biases on queries, keys and values.
pub fn qwen2_5_7b() -> Model {
    let mut model = Model::new("qwen2", 28, 3584, 152_064, 131_072);
    model.heads(28, 4, 128, 128).number("feed_forward_length", 18_944).ends(false);
    for layer in 0..28 {
        model.attention(layer, 28, 4, 128, 128).feed_forward(layer, 18_944);
        for (bias, len) in [("attn_q", 3584), ("attn_k", 512), ("attn_v", 512)] {
            model.vector(&format!("blk.{layer}.{bias}.bias"), len);
        }
    }
    model
}

/// Phi 4 mini: fused projections, and a window that nobody applies.
pub fn phi_4_mini() -> Model {
    let mut model = Model::new("phi3", 32, 3072, 200_064, 131_072);
    model.heads(24, 8, 128, 128).number("feed_forward_length", 8192).number("rope.dimension_count", 96);
    model.number("attention.sliding_window", 262_144).number("rope.scaling.original_context_length", 4096).ends(true);
    for layer in 0..32 {
        model.vector(&name(layer, "attn_norm"), 3072).matrix(&name(layer, "attn_qkv"), 3072, 5120);
        model.matrix(&name(layer, "attn_output"), 3072, 3072).vector(&name(layer, "ffn_norm"), 3072);
        model.matrix(&name(layer, "ffn_up"), 3072, 2 * 8192).matrix(&name(layer, "ffn_down"), 8192, 3072);
    }
    model
}

pub fn glm_4_9b() -> Model {
    let mut model = Model::new("glm4", 40, 4096, 151_552, 131_072);
    model.heads(32, 2, 128, 128).number("feed_forward_length", 13_696).number("rope.dimension_count", 64).ends(false);
    for layer in 0..40 {
        model.attention(layer, 32, 2, 128, 128).vector(&name(layer, "post_attention_norm"), 4096);
        model.vector(&name(layer, "ffn_norm"), 4096).matrix(&name(layer, "ffn_up"), 4096, 2 * 13_696);
        model.matrix(&name(layer, "ffn_down"), 13_696, 4096).vector(&name(layer, "post_ffw_norm"), 4096);
    }
    model
}

/// GLM 4.5 Air: 46 layers and one that drafts.
pub fn glm_4_5_air() -> Model {
    let mut model = Model::new("glm4moe", 47, 4096, 151_552, 131_072);
    model.heads(96, 8, 128, 128).number("feed_forward_length", 10_944).number("leading_dense_block_count", 1);
    model.number("expert_count", 128).number("expert_used_count", 8).number("expert_feed_forward_length", 1408);
    model.number("expert_shared_count", 1).number("nextn_predict_layers", 1).number("rope.dimension_count", 64);
    model.ends(false);
    for layer in 0..47 {
        model.attention(layer, 96, 8, 128, 128).vector(&name(layer, "post_attention_norm"), 4096);
        for (bias, len) in [("attn_q", 12_288), ("attn_k", 1024), ("attn_v", 1024)] {
            model.vector(&format!("blk.{layer}.{bias}.bias"), len);
        }
        if layer == 0 {
            model.gated(layer, 10_944);
        } else {
            model.experts(layer, 128, 1408).shared_experts(layer, 1408);
            model.vector(&format!("blk.{layer}.exp_probs_b.bias"), 128);
        }
        if layer == 46 {
            model.matrix(&name(layer, "nextn.eh_proj"), 8192, 4096);
            for norm in ["nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm"] {
                model.vector(&name(layer, norm), 4096);
            }
        }
    }
    model
}

pub fn mamba2_2_7b() -> Model {
    let mut model = Model::new("mamba2", 64, 2560, 50_288, 1_048_576);
    model.number("ssm.inner_size", 5120).number("ssm.state_size", 128).number("ssm.conv_kernel", 4);
    model.number("ssm.time_step_rank", 80).number("ssm.group_count", 1).number("attention.head_count", 0);
    model.number("feed_forward_length", 0).ends(true);
    for layer in 0..64 {
        model.mamba2(layer, 5120, 128, 1, 80);
    }
    model
}

/// Nemotron-H 8B: a layer recurs (M), attends (*) or is a feed-forward (-).
pub fn nemotron_h_8b() -> Model {
    const PATTERN: &str = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
    let mut model = Model::new("nemotron_h", PATTERN.len() as u64, 4096, 131_072, 8192);
    let of = |kind: char, value: u32| -> Vec<u32> {
        PATTERN.chars().map(|letter| if letter == kind { value } else { 0 }).collect()
    };
    model.number("attention.head_count", 32).numbers("attention.head_count_kv", &of('*', 8));
    model.number("attention.key_length", 128).number("attention.value_length", 128);
    model.numbers("feed_forward_length", &of('-', 21_504)).float("attention.layer_norm_epsilon", 1e-5);
    model.number("ssm.inner_size", 8192).number("ssm.state_size", 128).number("ssm.conv_kernel", 4);
    model.number("ssm.time_step_rank", 128).number("ssm.group_count", 8).ends(false);
    for (layer, kind) in PATTERN.chars().enumerate() {
        let layer = layer as u64;
        match kind {
            'M' => model.mamba2(layer, 8192, 128, 8, 128),
            '*' => model.attention(layer, 32, 8, 128, 128),
            _ => {
                model.vector(&name(layer, "attn_norm"), 4096).matrix(&name(layer, "ffn_up"), 4096, 21_504);
                model.matrix(&name(layer, "ffn_down"), 21_504, 4096)
            }
        };
    }
    model
}

pub fn lfm2_1_2b() -> Model {
    let attends = |layer: u64| [2, 5, 8, 10, 12, 14].contains(&layer);
    let mut model = Model::new("lfm2", 16, 2048, 65_536, 128_000);
    let kv_heads: Vec<u32> = (0..16).map(|layer| if attends(layer) { 8 } else { 0 }).collect();
    model.number("attention.head_count", 32).numbers("attention.head_count_kv", &kv_heads);
    model.number("feed_forward_length", 8192).number("shortconv.l_cache", 3);
    model.matrix("token_embd.weight", 2048, 65_536).vector("token_embd_norm.weight", 2048);
    for layer in 0..16 {
        if attends(layer) {
            model.attention(layer, 32, 8, 64, 64).qk_norms(layer, 64);
        } else {
            model.vector(&name(layer, "attn_norm"), 2048).matrix(&name(layer, "shortconv.in_proj"), 2048, 3 * 2048);
            model.table(&name(layer, "shortconv.conv"), 3, 2048).matrix(&name(layer, "shortconv.out_proj"), 2048, 2048);
        }
        model.feed_forward(layer, 8192);
    }
    model
}

/// Command R7B: a window of 4096 on three layers of four.
pub fn command_r7b() -> Model {
    let mut model = Model::new("cohere2", 32, 4096, 256_000, 8192);
    model.heads(32, 8, 128, 128).number("feed_forward_length", 14_336).number("attention.sliding_window", 4096);
    model.float("attention.layer_norm_epsilon", 1e-5).float("logit_scale", 0.25).ends(true);
    for layer in 0..32 {
        model.attention(layer, 32, 8, 128, 128).gated(layer, 14_336);
    }
    model
}

pub fn llama_4_scout() -> Model {
    let mut model = Model::new("llama4", 48, 5120, 202_048, 10_485_760);
    model.heads(40, 8, 128, 128).number("feed_forward_length", 16_384).number("rope.dimension_count", 128);
    model.number("expert_count", 16).number("expert_used_count", 1).number("expert_feed_forward_length", 8192);
    model.number("interleave_moe_layer_step", 1).ends(false);
    for layer in 0..48 {
        model.attention(layer, 40, 8, 128, 128).vector(&name(layer, "ffn_norm"), 5120);
        model.experts(layer, 16, 8192).shared_experts(layer, 8192);
    }
    model
}

/// Norms after attention and feed-forward only: OLMo 2 and 3, EXAONE 4.
fn post_norms(model: &mut Model, shape: Dense, norms: [u64; 2]) {
    let (layers, hidden, heads, kv_heads, dim, size, _) = shape;
    for layer in 0..layers {
        model.matrix(&name(layer, "attn_q"), hidden, heads * dim).matrix(
            &name(layer, "attn_k"),
            hidden,
            kv_heads * dim,
        );
        model.matrix(&name(layer, "attn_v"), hidden, kv_heads * dim);
        model.matrix(&name(layer, "attn_output"), heads * dim, hidden);
        model.vector(&name(layer, "attn_q_norm"), norms[0]).vector(&name(layer, "attn_k_norm"), norms[1]);
        model.vector(&name(layer, "post_attention_norm"), hidden).gated(layer, size);
        model.vector(&name(layer, "post_ffw_norm"), hidden);
    }
}

pub fn olmo_3_7b() -> Model {
    const SHAPE: Dense = (32, 4096, 32, 32, 128, 11_008, 100_278);
    let mut model = Model::new("olmo2", 32, 4096, 100_278, 65_536);
    model.heads(32, 32, 128, 128).number("feed_forward_length", 11_008).number("attention.sliding_window", 4096);
    model.ends(false);
    post_norms(&mut model, SHAPE, [4096, 4096]);
    model
}

pub fn exaone_4_32b() -> Model {
    const SHAPE: Dense = (64, 5120, 40, 8, 128, 27_392, 102_400);
    let mut model = Model::new("exaone4", 64, 5120, 102_400, 131_072);
    model.heads(40, 8, 128, 128).number("feed_forward_length", 27_392).number("attention.sliding_window", 4096);
    model.number("rope.dimension_count", 128).ends(false);
    post_norms(&mut model, SHAPE, [128, 128]);
    model
}

pub fn granite_3_8b() -> Model {
    let mut model = Model::new("granite", 40, 4096, 49_155, 131_072);
    model.quant = TensorType::F16;
    model.heads(32, 8, 128, 128).number("feed_forward_length", 12_800).number("rope.dimension_count", 128);
    for (key, value) in
        [("logit_scale", 16.0), ("residual_scale", 0.22), ("embedding_scale", 12.0), ("attention.scale", 0.01)]
    {
        model.float(key, value);
    }
    model.ends(true);
    for layer in 0..40 {
        model.attention(layer, 32, 8, 128, 128).feed_forward(layer, 12_800);
    }
    model
}
