//! Published models.

use memtier_model::TensorType;

use super::Model;

/// Layers, hidden size, query and key-value heads, head size, feed-forward size, vocabulary.
pub type Dense = (u64, u64, u64, u64, u64, u64, u64);

/// The types of single matrices, by name and number of layers.
pub type Own = fn(&str, u64) -> Option<TensorType>;

pub const LLAMA_3_8B: Dense = (32, 4096, 32, 8, 128, 14_336, 128_256);
pub const LLAMA_3_70B: Dense = (80, 8192, 64, 8, 128, 28_672, 128_256);
pub const LLAMA_3_2_3B: Dense = (28, 3072, 24, 8, 128, 8192, 128_256);
pub const MISTRAL_SMALL_22B: Dense = (56, 6144, 48, 8, 128, 16_384, 32_768);
pub const SMOLLM2_135M: Dense = (30, 576, 9, 3, 64, 1536, 49_152);
pub const QWEN3_0_6B: Dense = (28, 1024, 16, 8, 128, 3072, 151_936);
pub const QWEN3_1_7B: Dense = (28, 2048, 16, 8, 128, 6144, 151_936);
pub const QWEN3_4B: Dense = (36, 2560, 32, 8, 128, 9728, 151_936);

pub fn llama(shape: Dense, quant: TensorType, tied: bool) -> Model {
    llama_of(shape, quant, tied, |_, _| None)
}

pub fn llama_of(shape: Dense, quant: TensorType, tied: bool, own: Own) -> Model {
    let (layers, hidden, heads, kv_heads, dim, size, vocab) = shape;
    let mut model = Model::new("llama", layers, hidden, vocab, 8192);
    (model.quant, model.own) = (quant, own);
    model.heads(heads, kv_heads, dim, dim).number("feed_forward_length", size).number("rope.dimension_count", dim);
    model.ends(tied);
    for layer in 0..layers {
        model.attention(layer, heads, kv_heads, dim, dim).feed_forward(layer, size);
    }
    model
}

pub fn qwen3(shape: Dense, quant: TensorType) -> Model {
    let (layers, hidden, heads, kv_heads, dim, size, vocab) = shape;
    let mut model = Model::new("qwen3", layers, hidden, vocab, 40_960);
    model.quant = quant;
    model.heads(heads, kv_heads, dim, dim).number("feed_forward_length", size).ends(true);
    for layer in 0..layers {
        model.attention(layer, heads, kv_heads, dim, dim).qk_norms(layer, dim).feed_forward(layer, size);
    }
    model
}

pub fn qwen3_30b_a3b(quant: TensorType) -> Model {
    let mut model = Model::new("qwen3moe", 48, 2048, 151_936, 262_144);
    model.quant = quant;
    model.heads(32, 4, 128, 128).number("feed_forward_length", 6144);
    model.number("expert_count", 128).number("expert_used_count", 8).number("expert_feed_forward_length", 768);
    model.ends(false);
    for layer in 0..48 {
        model.attention(layer, 32, 4, 128, 128).qk_norms(layer, 128);
        model.vector(&format!("blk.{layer}.ffn_norm.weight"), 2048).experts(layer, 128, 768);
    }
    model
}

pub fn mixtral(quant: TensorType) -> Model {
    mixtral_of(quant, |_, _| None)
}

pub fn mixtral_of(quant: TensorType, own: Own) -> Model {
    let mut model = Model::new("llama", 32, 4096, 32_000, 32_768);
    (model.quant, model.own) = (quant, own);
    model.heads(32, 8, 128, 128).number("feed_forward_length", 14_336).number("rope.dimension_count", 128);
    model.number("expert_count", 8).number("expert_used_count", 2).ends(false);
    for layer in 0..32 {
        model.attention(layer, 32, 8, 128, 128);
        model.vector(&format!("blk.{layer}.ffn_norm.weight"), 4096).experts(layer, 8, 14_336);
    }
    model
}

pub fn olmoe(quant: TensorType) -> Model {
    let mut model = Model::new("olmoe", 16, 2048, 50_304, 4096);
    model.quant = quant;
    model.heads(16, 16, 128, 128).number("feed_forward_length", 1024);
    model.number("expert_count", 64).number("expert_used_count", 8).ends(false);
    for layer in 0..16 {
        model.attention(layer, 16, 16, 128, 128).qk_norms(layer, 2048);
        model.vector(&format!("blk.{layer}.ffn_norm.weight"), 2048).experts(layer, 64, 1024);
    }
    model
}

pub fn command_r() -> Model {
    let mut model = Model::new("command-r", 40, 8192, 256_000, 131_072);
    model.heads(64, 64, 128, 128).number("feed_forward_length", 22_528).float("logit_scale", 0.0625);
    model.float("attention.layer_norm_epsilon", 1e-5).ends(true);
    for layer in 0..40 {
        model.attention(layer, 64, 64, 128, 128).gated(layer, 22_528);
    }
    model
}

/// DeepSeek V2 Lite and Coder V2 Lite. `latent` files have their projections split for a cache of latents.
pub fn deepseek_v2_lite(quant: TensorType, latent: bool) -> Model {
    deepseek_v2_lite_of(quant, latent, |_, _| None)
}

pub fn deepseek_v2_lite_of(quant: TensorType, latent: bool, own: Own) -> Model {
    let mut model = Model::new("deepseek2", 27, 2048, 102_400, 163_840);
    (model.quant, model.own) = (quant, own);
    deepseek(&mut model, latent, [16, 0, 10_944, 1], [64, 6, 1408, 2]);
    model
}

/// DeepSeek V3 and V3.1, without the draft layer that most files leave out.
pub fn deepseek_v3() -> Model {
    let mut model = Model::new("deepseek2", 61, 7168, 129_280, 163_840);
    deepseek(&mut model, true, [128, 1536, 18_432, 3], [256, 8, 2048, 1]);
    model
}

/// Heads, rank of queries (0 is none), dense size and dense layers; experts, used, their size, shared ones.
fn deepseek(model: &mut Model, latent: bool, [heads, q_rank, dense, lead]: [u64; 4], experts: [u64; 4]) {
    let [count, used, size, shared] = experts;
    model.number("feed_forward_length", dense).number("leading_dense_block_count", lead);
    model.number("expert_count", count).number("expert_used_count", used);
    model.number("expert_feed_forward_length", size).number("expert_shared_count", shared);
    model.float("expert_weights_scale", 1.0).number("attention.kv_lora_rank", 512).number("rope.dimension_count", 64);
    if q_rank > 0 {
        model.number("attention.q_lora_rank", q_rank);
    }
    if latent {
        model
            .heads(heads, 1, 576, 512)
            .number("attention.key_length_mla", 192)
            .number("attention.value_length_mla", 128);
    } else {
        model.heads(heads, heads, 192, 128);
    }
    model.ends(false);
    let (hidden, layers) = (model.hidden, model.layers);
    for layer in 0..layers {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}.weight");
        model.vector(&name("attn_norm"), hidden).vector(&name("attn_kv_a_norm"), 512);
        if q_rank > 0 {
            model.matrix(&name("attn_q_a"), hidden, q_rank).vector(&name("attn_q_a_norm"), q_rank);
            model.matrix(&name("attn_q_b"), q_rank, heads * 192);
        } else {
            model.matrix(&name("attn_q"), hidden, heads * 192);
        }
        model.matrix(&name("attn_kv_a_mqa"), hidden, 576);
        if latent {
            model.cube(&name("attn_k_b"), [128, 512, heads]).cube(&name("attn_v_b"), [512, 128, heads]);
        } else {
            model.matrix(&name("attn_kv_b"), 512, heads * 256);
        }
        model.matrix(&name("attn_output"), heads * 128, hidden).vector(&name("ffn_norm"), hidden);
        if layer < lead {
            model.gated(layer, dense);
        } else {
            model.experts(layer, count, size).shared_experts(layer, shared * size);
        }
    }
}

/// GLM 5: latents, and an index in 21 of 78 layers. Attention's keys only: what its cache is made of.
pub fn glm_dsa() -> Model {
    let mut model = Model::new("glm-dsa", 78, 6144, 154_880, 1_048_576);
    model.heads(64, 1, 576, 512).number("attention.key_length_mla", 256).number("attention.value_length_mla", 256);
    model.number("attention.kv_lora_rank", 512).number("rope.dimension_count", 64);
    model.number("feed_forward_length", 12_288).number("attention.indexer.key_length", 128);
    let own: Vec<u32> = (0..78).map(|layer| u32::from(layer < 3 || (layer - 3) % 4 == 3)).collect();
    model.numbers("attention.indexer.types", &own).ends(false);
    model
}

/// Layers, hidden, heads, key-value heads, head size, feed-forward, window, vocabulary.
pub fn gemma(arch: &'static str, shape: [u64; 8]) -> Model {
    let [layers, hidden, heads, kv_heads, dim, size, window, vocab] = shape;
    let mut model = Model::new(arch, layers, hidden, vocab, 131_072);
    model.heads(heads, kv_heads, dim, dim).number("feed_forward_length", size);
    model.number("attention.sliding_window", window).ends(true);
    for layer in 0..layers {
        model.attention(layer, heads, kv_heads, dim, dim).feed_forward(layer, size);
        if arch == "gemma3" {
            model.qk_norms(layer, dim);
        }
        model.vector(&format!("blk.{layer}.post_attention_norm.weight"), hidden);
        model.vector(&format!("blk.{layer}.post_ffw_norm.weight"), hidden);
    }
    model
}

pub const GEMMA_2_9B: [u64; 8] = [42, 3584, 16, 8, 256, 14_336, 4096, 256_000];
pub const GEMMA_3_270M: [u64; 8] = [18, 640, 4, 1, 256, 2048, 512, 262_144];
pub const GEMMA_3_4B: [u64; 8] = [34, 2560, 8, 4, 256, 10_240, 1024, 262_144];

/// Gemma 4 12B: global layers of one head of 512, windowed ones of eight of 256.
pub fn gemma_4_12b() -> Model {
    let mut model = Model::new("gemma4", 48, 3840, 262_144, 262_144);
    let windowed: Vec<bool> = (0..48).map(|layer| layer % 6 != 5).collect();
    let kv_heads: Vec<u32> = windowed.iter().map(|&on| if on { 8 } else { 1 }).collect();
    model.number("attention.head_count", 16).numbers("attention.head_count_kv", &kv_heads);
    model.number("attention.key_length", 512).number("attention.value_length", 512);
    model.number("attention.key_length_swa", 256).number("attention.value_length_swa", 256);
    model.number("attention.sliding_window", 1024).flags("attention.sliding_window_pattern", &windowed);
    model.number("feed_forward_length", 15_360).number("attention.shared_kv_layers", 0);
    model.number("embedding_length_per_layer_input", 0).ends(true);
    for layer in 0..48 {
        let (kv, dim) = if windowed[layer as usize] { (8, 256) } else { (1, 512) };
        model.attention(layer, 16, kv, dim, dim).qk_norms(layer, dim).feed_forward(layer, 15_360);
        model.vector(&format!("blk.{layer}.post_attention_norm.weight"), 3840);
        model.vector(&format!("blk.{layer}.post_ffw_norm.weight"), 3840);
    }
    model.vector("rope_freqs.weight", 256);
    model
}

pub fn gpt_oss(layers: u64, experts: u64) -> Model {
    let mut model = Model::new("gpt-oss", layers, 2880, 201_088, 131_072);
    model.quant = TensorType::MXFP4;
    model.heads(64, 8, 64, 64).number("feed_forward_length", 2880).number("expert_feed_forward_length", 2880);
    model.number("expert_count", experts).number("expert_used_count", 4).number("attention.sliding_window", 128);
    model.ends(false);
    for layer in 0..layers {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        model.attention(layer, 64, 8, 64, 64).vector(&name("post_attention_norm.weight"), 2880);
        model.vector(&name("attn_sinks.weight"), 64).experts(layer, experts, 2880);
        for (bias, len) in [("attn_q", 4096), ("attn_k", 512), ("attn_v", 512), ("attn_output", 2880)] {
            model.vector(&name(&format!("{bias}.bias")), len);
        }
        model.vector(&name("ffn_gate_inp.bias"), experts);
        for tensor in ["ffn_gate_exps.bias", "ffn_up_exps.bias", "ffn_down_exps.bias"] {
            model.table(&name(tensor), 2880, experts);
        }
    }
    model
}

pub fn mamba_2_8b() -> Model {
    let mut model = Model::new("mamba", 64, 2560, 50_280, 1_048_576);
    model.number("ssm.inner_size", 5120).number("ssm.state_size", 16).number("ssm.conv_kernel", 4);
    model.number("ssm.time_step_rank", 160).number("feed_forward_length", 0).number("attention.head_count", 0);
    model.ends(true);
    for layer in 0..64 {
        model.mamba(layer, 5120, 16, 160);
    }
    model
}

/// `ssm.*` keys: inner size, state, groups, heads or rank of the time step.
fn states(model: &mut Model, [inner, state, groups, heads]: [u64; 4]) {
    model.number("ssm.inner_size", inner).number("ssm.state_size", state).number("ssm.group_count", groups);
    model.number("ssm.time_step_rank", heads).number("ssm.conv_kernel", 4);
}

pub fn falcon_h1_1_5b() -> Model {
    let mut model = Model::new("falcon-h1", 24, 2048, 65_537, 131_072);
    model.heads(8, 2, 128, 128).number("feed_forward_length", 4096);
    states(&mut model, [3072, 256, 1, 48]);
    model.ends(false);
    for layer in 0..24 {
        // This architecture's files name this norm without the usual ending.
        model.attention(layer, 8, 2, 128, 128).vector(&format!("blk.{layer}.ffn_norm"), 2048).gated(layer, 4096);
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        model.matrix(&name("ssm_in.weight"), 2048, 3072 + 3072 + 512 + 48).table(&name("ssm_conv1d.weight"), 4, 3584);
        model.vector(&name("ssm_conv1d.bias"), 3584).vector(&name("ssm_dt.bias"), 48);
        model.table(&name("ssm_a"), 1, 48).table(&name("ssm_d"), 1, 48).matrix(&name("ssm_out.weight"), 3072, 2048);
    }
    model
}

/// Granite 4 hybrids: 40 layers, of which the 6th, 16th, 26th and 36th attend.
fn granite_hybrid(hidden: u64, heads: [u64; 3], ssm: [u64; 4], experts: [u64; 4]) -> Model {
    let ([heads, kv, dim], [count, used, size, shared]) = (heads, experts);
    let mut model = Model::new("granitehybrid", 40, hidden, 100_352, 131_072);
    let attends = |layer: u64| layer % 10 == 5;
    let kv_heads: Vec<u32> = (0..40).map(|layer| if attends(layer) { kv as u32 } else { 0 }).collect();
    model.number("attention.head_count", heads).numbers("attention.head_count_kv", &kv_heads);
    model.number("attention.key_length", dim).number("attention.value_length", dim);
    model.number("feed_forward_length", size).number("expert_count", count).number("expert_used_count", used);
    model.number("expert_shared_feed_forward_length", shared).number("rope.dimension_count", dim);
    model.float("logit_scale", 1.0).float("residual_scale", 1.0).float("embedding_scale", 1.0);
    model.float("attention.scale", 1.0);
    states(&mut model, ssm);
    let [inner, state, groups, ssm_heads] = ssm;
    model.ends(true);
    for layer in 0..40 {
        if attends(layer) {
            model.attention(layer, heads, kv, dim, dim);
        } else {
            model.mamba2(layer, inner, state, groups, ssm_heads);
        }
        model.vector(&format!("blk.{layer}.ffn_norm.weight"), hidden).experts(layer, count, size);
        model.shared_experts(layer, shared);
    }
    model
}

pub fn granite_4_h_tiny() -> Model {
    granite_hybrid(1536, [12, 4, 128], [3072, 128, 1, 48], [64, 6, 512, 1024])
}

pub fn granite_4_h_small() -> Model {
    granite_hybrid(4096, [32, 8, 128], [8192, 128, 1, 128], [72, 10, 768, 1536])
}

pub fn jamba_v0_1() -> Model {
    let mut model = Model::new("jamba", 32, 4096, 65_536, 262_144);
    let attends = |layer: u64| layer % 8 == 4;
    let kv_heads: Vec<u32> = (0..32).map(|layer| if attends(layer) { 8 } else { 0 }).collect();
    model.number("attention.head_count", 32).numbers("attention.head_count_kv", &kv_heads);
    model.number("feed_forward_length", 14_336).number("expert_count", 16).number("expert_used_count", 2);
    model.number("ssm.inner_size", 8192).number("ssm.state_size", 16).number("ssm.conv_kernel", 4);
    model.number("ssm.time_step_rank", 256).ends(false);
    for layer in 0..32 {
        if attends(layer) {
            model.attention(layer, 32, 8, 128, 128);
        } else {
            model.mamba(layer, 8192, 16, 256);
            model.vector(&format!("blk.{layer}.ssm_dt_norm.weight"), 256);
            model.vector(&format!("blk.{layer}.ssm_b_norm.weight"), 16);
            model.vector(&format!("blk.{layer}.ssm_c_norm.weight"), 16);
        }
        model.vector(&format!("blk.{layer}.ffn_norm.weight"), 4096);
        if layer % 2 == 1 {
            model.experts(layer, 16, 14_336);
        } else {
            model.gated(layer, 14_336);
        }
    }
    model
}

/// Qwen3-Next, 3.5 and 3.6. Layers, hidden, heads, key-value heads; `ssm.*`; experts (zeros for dense), their size.
pub fn qwen_hybrid(arch: &'static str, shape: [u64; 4], ssm: [u64; 4], size: u64, experts: [u64; 3]) -> Model {
    let ([layers, hidden, heads, kv], [count, used, shared]) = (shape, experts);
    let mut model = Model::new(arch, layers, hidden, 151_936, 262_144);
    model.heads(heads, kv, 256, 256).number("feed_forward_length", size).number("rope.dimension_count", 64);
    model.numbers("rope.dimension_sections", &[11, 11, 10, 0]);
    if count > 0 {
        model.number("expert_count", count).number("expert_used_count", used);
        model.number("expert_feed_forward_length", size).number("expert_shared_feed_forward_length", shared);
    }
    states(&mut model, ssm);
    let [inner, state, groups, _] = ssm;
    model.ends(false);
    for layer in 0..layers {
        if layer % 4 == 3 {
            model.vector(&format!("blk.{layer}.attn_norm.weight"), hidden);
            // The gate of the output comes with the queries.
            model.matrix(&format!("blk.{layer}.attn_q.weight"), hidden, 2 * heads * 256);
            model.matrix(&format!("blk.{layer}.attn_k.weight"), hidden, kv * 256);
            model.matrix(&format!("blk.{layer}.attn_v.weight"), hidden, kv * 256);
            model.matrix(&format!("blk.{layer}.attn_output.weight"), heads * 256, hidden).qk_norms(layer, 256);
        } else {
            model.delta_net(layer, state, groups, inner / state, arch == "qwen3next");
        }
        model.vector(&format!("blk.{layer}.post_attention_norm.weight"), hidden);
        if count == 0 {
            model.gated(layer, size);
        } else {
            model.experts(layer, count, size).shared_experts(layer, shared);
            model.vector(&format!("blk.{layer}.ffn_gate_inp_shexp.weight"), hidden);
        }
    }
    model
}

pub fn qwen3_6_27b() -> Model {
    qwen_hybrid("qwen35", [64, 5120, 24, 4], [6144, 128, 16, 48], 17_408, [0, 0, 0])
}

pub fn qwen3_6_35b_a3b() -> Model {
    qwen_hybrid("qwen35moe", [40, 2048, 16, 2], [4096, 128, 16, 32], 512, [256, 8, 512])
}

pub fn qwen3_next_80b() -> Model {
    qwen_hybrid("qwen3next", [48, 2048, 16, 2], [4096, 128, 16, 32], 512, [512, 10, 512])
}
