//! Configurations of checkpoints as they are published, and the same models as files of GGUF.

use serde_json::{Value, json};

use super::*;

/// A `config.json` and the model that it describes, by its architecture.
pub type Configured = (&'static str, Value, Model);

/// Models that attend to everything.
pub fn attending() -> Vec<Configured> {
    vec![
        (
            "qwen3",
            json!({"model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9728, "vocab_size": 151_936,
            "sliding_window": null, "use_sliding_window": false}),
            qwen3(QWEN3_4B, TensorType::F16),
        ),
        (
            "mixtral",
            json!({"model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 14_336, "num_local_experts": 8, "num_experts_per_tok": 2}),
            mixtral(TensorType::F16),
        ),
        (
            "deepseek_v3",
            json!({"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
            "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
            "v_head_dim": 128, "intermediate_size": 18_432, "n_routed_experts": 256}),
            deepseek_v3(),
        ),
        (
            "glm4_moe",
            json!({"model_type": "glm4_moe", "num_hidden_layers": 46, "num_nextn_predict_layers": 1, "hidden_size": 4096,
            "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 10_944}),
            glm_4_5_air(),
        ),
    ]
}

/// Models with windows. Those with a tower keep the language model's part apart.
pub fn windowed() -> Vec<Configured> {
    let kinds = |period: usize, layers: usize| -> Vec<&str> {
        (0..layers)
            .map(|layer| if (layer + 1) % period == 0 { "full_attention" } else { "sliding_attention" })
            .collect()
    };
    vec![
        (
            "gemma3",
            json!({"model_type": "gemma3", "vision_config": {"image_size": 896, "patch_size": 14}, "text_config":
            {"model_type": "gemma3_text", "num_hidden_layers": 34, "hidden_size": 2560, "num_attention_heads": 8,
            "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 10_240, "sliding_window": 1024}}),
            gemma("gemma3", GEMMA_3_4B),
        ),
        (
            "gemma4",
            json!({"model_type": "gemma4", "text_config": {"model_type": "gemma4_text", "num_hidden_layers": 48,
            "hidden_size": 3840, "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 1,
            "head_dim": 256, "global_head_dim": 512, "intermediate_size": 15_360, "sliding_window": 1024,
            "num_kv_shared_layers": 0, "layer_types": kinds(6, 48)}}),
            gemma_4_12b(),
        ),
        (
            "gpt_oss",
            json!({"model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880, "num_attention_heads": 64,
            "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "sliding_window": 128,
            "num_local_experts": 32, "layer_types": kinds(2, 24)}),
            gpt_oss(24, 32),
        ),
        (
            "olmo3",
            json!({"model_type": "olmo3", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 32, "intermediate_size": 11_008, "sliding_window": 4096, "layer_types": kinds(4, 32)}),
            olmo_3_7b(),
        ),
    ]
}

/// Models with a recurrent state.
pub fn recurrent() -> Vec<Configured> {
    let attends = |layer: u64| if layer % 10 == 5 { "attention" } else { "mamba" };
    vec![
        (
            "qwen3_next",
            json!({"model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 16,
            "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120, "linear_num_value_heads": 32,
            "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
            "linear_conv_kernel_dim": 4, "full_attention_interval": 4}),
            qwen3_next_80b(),
        ),
        (
            "jamba",
            json!({"model_type": "jamba", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 14_336, "mamba_d_state": 16, "mamba_d_conv": 4,
            "mamba_expand": 2, "attn_layer_period": 8, "attn_layer_offset": 4}),
            jamba_v0_1(),
        ),
        (
            "granitemoehybrid",
            json!({"model_type": "granitemoehybrid", "num_hidden_layers": 40, "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 768, "mamba_d_state": 128, "mamba_d_conv": 4,
            "mamba_n_groups": 1, "mamba_expand": 2, "layer_types": (0..40).map(attends).collect::<Vec<_>>()}),
            granite_4_h_small(),
        ),
        (
            "falcon_h1",
            json!({"model_type": "falcon_h1", "num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 8,
            "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 4096, "mamba_d_ssm": 3072,
            "mamba_d_state": 256, "mamba_n_groups": 1, "mamba_d_conv": 4}),
            falcon_h1_1_5b(),
        ),
        (
            "nemotron_h",
            json!({"model_type": "nemotron_h", "num_hidden_layers": 52, "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "attention_head_dim": 128, "intermediate_size": 21_504, "ssm_state_size": 128,
            "conv_kernel": 4, "n_groups": 8, "mamba_num_heads": 128, "mamba_head_dim": 64,
            "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"}),
            nemotron_h_8b(),
        ),
        (
            "lfm2",
            json!({"model_type": "lfm2", "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 8192, "conv_L_cache": 3, "full_attn_idxs": [2, 5, 8, 10, 12, 14]}),
            lfm2_1_2b(),
        ),
        (
            "mamba",
            json!({"model_type": "mamba", "num_hidden_layers": 64, "hidden_size": 2560, "state_size": 16, "conv_kernel": 4,
            "expand": 2, "vocab_size": 50_280}),
            mamba_2_8b(),
        ),
    ]
}
