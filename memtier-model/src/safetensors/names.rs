//! `model_type` of a `config.json`, as GGUF names the architecture.

/// Types whose name differs by more than underscores.
const TABLE: &[(&str, &str)] = &[
    ("cohere", "command-r"),
    ("deepseek_v2", "deepseek2"),
    ("deepseek_v3", "deepseek2"),
    ("deepseek_v32", "deepseek32"),
    ("falcon_h1", "falcon-h1"),
    ("gemma3_text", "gemma3"),
    ("gemma3n_text", "gemma3n"),
    ("gemma4_text", "gemma4"),
    ("glm", "chatglm"),
    ("glm4_moe", "glm4moe"),
    ("glm_moe_dsa", "glm-dsa"),
    ("gpt_neox", "gptneox"),
    ("gpt_oss", "gpt-oss"),
    ("granitemoehybrid", "granitehybrid"),
    ("kimi_k2", "deepseek2"),
    ("kimi_linear", "kimi-linear"),
    ("lfm2_moe", "lfm2moe"),
    ("llama4_text", "llama4"),
    ("minimax_m2", "minimax-m2"),
    ("ministral", "llama"),
    ("mistral", "llama"),
    ("mistral3", "llama"),
    ("mixtral", "llama"),
    ("nemotron_h", "nemotron_h"),
    ("olmo3", "olmo2"),
    ("phi", "phi2"),
    ("qwen2_5_vl", "qwen2vl"),
    ("qwen2_5_vl_text", "qwen2vl"),
    ("qwen2_moe", "qwen2moe"),
    ("qwen2_vl", "qwen2vl"),
    ("qwen2_vl_text", "qwen2vl"),
    ("qwen3_5", "qwen35"),
    ("qwen3_5_moe", "qwen35moe"),
    ("qwen3_5_moe_text", "qwen35moe"),
    ("qwen3_5_text", "qwen35"),
    ("qwen3_moe", "qwen3moe"),
    ("qwen3_next", "qwen3next"),
    ("qwen3_vl", "qwen3vl"),
    ("qwen3_vl_moe", "qwen3vlmoe"),
    ("qwen3_vl_moe_text", "qwen3vlmoe"),
    ("qwen3_vl_text", "qwen3vl"),
];

/// GGUF's name of an architecture, or the name itself where nobody has given it another.
pub(super) fn architecture(model_type: &str) -> &str {
    TABLE.iter().find(|entry| entry.0 == model_type).map_or(model_type, |entry| entry.1)
}
