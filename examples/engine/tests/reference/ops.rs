//! The operations between the products.

use std::thread;

use memtier_model::TensorType;

use super::activations;

/// A matrix of `rows` rows of `columns` elements.
pub struct Matrix {
    pub columns: usize,
    pub data: Vec<f32>,
    /// The type whose rounding of activations products take over, if any.
    pub rounding: Option<TensorType>,
}

impl Matrix {
    pub fn rows(&self) -> usize {
        self.data.len() / self.columns
    }

    pub fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.columns..][..self.columns]
    }

    /// The product of this matrix with each of the vectors of `columns` elements in `x`: `rows` elements each.
    pub fn times(&self, x: &[f32]) -> Vec<f32> {
        let rounded = self.rounding.map(|tensor_type| activations::round(tensor_type, x));
        let x = rounded.as_deref().unwrap_or(x);
        let (rows, tokens) = (self.rows(), x.len() / self.columns);
        // Row-major first, so that each thread owns a stretch of the result.
        let mut by_row = vec![0.0; rows * tokens];
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let rows_each = rows.div_ceil(threads);
        thread::scope(|scope| {
            for (part, out) in by_row.chunks_mut(rows_each * tokens).enumerate() {
                scope.spawn(move || {
                    for (index, out) in out.chunks_mut(tokens).enumerate() {
                        let row = self.row(part * rows_each + index);
                        for (out, x) in out.iter_mut().zip(x.chunks(self.columns)) {
                            *out = dot(row, x);
                        }
                    }
                });
            }
        });
        let mut by_token = vec![0.0; rows * tokens];
        for (row, values) in by_row.chunks(tokens).enumerate() {
            for (token, &value) in values.iter().enumerate() {
                by_token[token * rows + row] = value;
            }
        }
        by_token
    }
}

/// A dot product in sixteen partial sums, which the compiler keeps in vector registers. The order of the sum does not
/// depend on anything but the length.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 16];
    let (a_chunks, b_chunks) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// Each row of `weight.len()` elements divided by its root mean square, times the weight. Gemma's weights are stored
/// with their 1 added already.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    x.chunks(weight.len())
        .flat_map(|row| {
            let mean = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / row.len() as f64;
            let scale = 1.0 / (mean as f32 + eps).sqrt();
            row.iter().zip(weight).map(move |(x, w)| x * scale * w)
        })
        .collect()
}

pub fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

pub fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

pub fn gelu_tanh(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * x * (1.0 + 0.044_715 * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

/// Turns scores into weights that sum to 1.
pub fn softmax(scores: &mut [f32]) {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|score| *score = (*score - max).exp());
    let sum: f32 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= sum);
}

/// The logarithms of the probabilities that logits stand for.
pub fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - max).exp()).sum();
    logits.iter().map(|&x| f64::from(x - max) - sum.ln()).collect()
}
