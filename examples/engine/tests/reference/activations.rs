//! The rounding of activations that integer products bring with them.

use memtier_model::TensorType;

use super::half;

/// Rounds vectors of `columns` elements as llama.cpp does before it multiplies them with a matrix of this type, and
/// leaves them alone where it multiplies floats.
pub fn round(tensor_type: TensorType, x: &[f32]) -> Vec<f32> {
    match tensor_type {
        TensorType::F32 => x.to_vec(),
        TensorType::F16 => x.iter().map(|&x| half::round(x)).collect(),
        kind if kind.block_elements() == 32 => x.chunks(32).flat_map(q8_0).collect(),
        kind if kind.block_elements() == 256 => x.chunks(256).flat_map(q8_k).collect(),
        other => panic!("{other}: how llama.cpp rounds for it is not known here"),
    }
}

/// 32 elements with a scale in half precision.
fn q8_0(block: &[f32]) -> impl Iterator<Item = f32> {
    let largest = block.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
    let scale = half::round(largest / 127.0);
    block.iter().map(move |x| (x * inverse).round_ties_even() * scale)
}

/// 256 elements with a scale in single precision, of which the largest becomes -127.
fn q8_k(block: &[f32]) -> impl Iterator<Item = f32> {
    let largest = block.iter().fold(0f32, |largest, &x| if x.abs() > largest.abs() { x } else { largest });
    let inverse = if largest == 0.0 { 0.0 } else { -127.0 / largest };
    let scale = if largest == 0.0 { 0.0 } else { 1.0 / inverse };
    block.iter().map(move |x| (x * inverse).round_ties_even().min(127.0) * scale)
}
