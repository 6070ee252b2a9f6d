//! Mixtures of element types, as llama.cpp's quantiser chooses them.

use memtier_model::TensorType::{self, Q4_K, Q5_1, Q5_K, Q6_K, Q8_0};

use super::Model;
use super::models::*;

/// The layers whose values and second projections get more bits: the first eighth, the last, and every third between.
fn more_bits(name: &str, layers: u64) -> bool {
    let layer = name.split('.').nth(1).and_then(|number| number.parse::<u64>().ok());
    layer.is_some_and(|layer| layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2)
}

pub fn llama_3_8b_q4_k_m() -> Model {
    llama_of(LLAMA_3_8B, Q4_K, false, |name, layers| match name {
        "output.weight" => Some(Q6_K),
        _ if (name.contains("attn_v") || name.contains("ffn_down")) && more_bits(name, layers) => Some(Q6_K),
        _ => None,
    })
}

/// Of the first quantisations with experts: values in 8 bits, the router in 16.
pub fn mixtral_q4_k_m() -> Model {
    mixtral_of(Q4_K, |name, _| match name {
        "output.weight" => Some(Q6_K),
        _ if name.contains("attn_v") => Some(Q8_0),
        _ if name.contains("attn_output") => Some(Q5_K),
        _ => None,
    })
}

pub fn mistral_small_22b_q6_k() -> Model {
    llama_of(MISTRAL_SMALL_22B, Q6_K, false, |name, _| (name == "output.weight").then_some(Q8_0))
}

/// Rows that are no whole number of blocks of 256 get the next type that has blocks of 32.
pub fn deepseek_coder_v2_lite_q5_k_m() -> Model {
    deepseek_v2_lite_of(Q5_K, false, |name, layers| {
        let (down, more) = (name.contains("ffn_down"), more_bits(name, layers));
        // 1408 elements of an expert and 10,944 of the dense layer; 2816 of the shared experts are whole blocks.
        let odd = down && !name.contains("shexp");
        let fallback: TensorType = if more { Q8_0 } else { Q5_1 };
        match name {
            "output.weight" => Some(Q6_K),
            _ if odd => Some(fallback),
            _ if down && more => Some(Q6_K),
            _ => None,
        }
    })
}
