//! Attention, one head and one token at a time.

use memtier_model::describe::{Attention, AttentionSpan, Rope, RopeLayout, RopeScaling};

use super::KvPrecision;
use super::half;
use super::ops::{Matrix, dot, rms_norm, softmax};
use super::weights::LayerWeights;

/// Keys and values of one layer, all tokens: a window only restricts who is looked at.
pub struct Cache {
    precision: KvPrecision,
    /// The first tokens and the latest that are seen, where that is not all: StreamingLLM.
    streaming: Option<(usize, usize)>,
    keys: Vec<f32>,
    /// The same before they were rotated.
    plain: Vec<f32>,
    values: Vec<f32>,
}

impl Cache {
    pub fn new(precision: KvPrecision, streaming: Option<(usize, usize)>) -> Cache {
        Cache { precision, streaming, keys: Vec::new(), plain: Vec::new(), values: Vec::new() }
    }

    fn push(&mut self, keys: &[f32], values: &[f32]) {
        let rounded = |&x: &f32| if self.precision == KvPrecision::F16 { half::round(x) } else { x };
        self.keys.extend(keys.iter().map(rounded));
        self.values.extend(values.iter().map(rounded));
    }
}

fn project(weight: &Matrix, bias: &Option<Vec<f32>>, x: &[f32]) -> Vec<f32> {
    let mut out = weight.times(x);
    if let Some(bias) = bias {
        out.chunks_mut(bias.len()).for_each(|row| super::ops::add(row, bias));
    }
    out
}

/// Attends from the tokens of `x`, the first of which is at `position`, to those before them and themselves.
pub fn attend(
    attention: &Attention,
    weights: &LayerWeights,
    cache: &mut Cache,
    position: usize,
    x: &[f32],
    eps: f32,
) -> Vec<f32> {
    let (heads, kv_heads) = (attention.heads as usize, attention.kv_heads as usize);
    let (key_dim, value_dim) = (attention.key_dim as usize, attention.value_dim as usize);
    let mut queries = project(&weights.attn_q, &weights.attn_q_bias, x);
    let mut keys = project(&weights.attn_k, &weights.attn_k_bias, x);
    let values = project(&weights.attn_v, &weights.attn_v_bias, x);
    if let (Some(q_norm), Some(k_norm)) = (&weights.attn_q_norm, &weights.attn_k_norm) {
        queries = rms_norm(&queries, q_norm, eps);
        keys = rms_norm(&keys, k_norm, eps);
    }
    let factors = weights.rope_factors.as_deref();
    if let (Some(kept), AttentionSpan::Full) = (cache.streaming, &attention.span) {
        cache.plain.extend_from_slice(&keys);
        cache.values.extend_from_slice(&values);
        let rows = queries.chunks(heads * key_dim).enumerate();
        let mixed: Vec<f32> =
            rows.flat_map(|(token, row)| stream(attention, factors, cache, kept, position + token, row)).collect();
        return project(&weights.attn_output, &weights.attn_output_bias, &mixed);
    }
    for (token, row) in queries.chunks_mut(heads * key_dim).enumerate() {
        row.chunks_mut(key_dim).for_each(|head| rotate(&attention.rope, factors, position + token, head));
    }
    for (token, row) in keys.chunks_mut(kv_heads * key_dim).enumerate() {
        row.chunks_mut(key_dim).for_each(|head| rotate(&attention.rope, factors, position + token, head));
    }
    cache.push(&keys, &values);

    let mut mixed = Vec::with_capacity(queries.len());
    for (token, row) in queries.chunks(heads * key_dim).enumerate() {
        let at = position + token;
        let first = match attention.span {
            AttentionSpan::Full => 0,
            AttentionSpan::Window { tokens } => (at + 1).saturating_sub(tokens as usize),
            other => panic!("{other:?}"),
        };
        for (head, query) in row.chunks(key_dim).enumerate() {
            let kv_head = head / (heads / kv_heads);
            let key = |at: usize| &cache.keys[(at * kv_heads + kv_head) * key_dim..][..key_dim];
            let value = |at: usize| &cache.values[(at * kv_heads + kv_head) * value_dim..][..value_dim];
            let mut scores: Vec<f32> = (first..=at)
                .map(|at| attention.scale * dot(query, key(at)))
                .map(|score| attention.softcap.map_or(score, |cap| cap * (score / cap).tanh()))
                .collect();
            softmax(&mut scores);
            let mut out = vec![0.0; value_dim];
            for (at, weight) in (first..=at).zip(&scores) {
                out.iter_mut().zip(value(at)).for_each(|(out, value)| *out += weight * value);
            }
            mixed.extend(out);
        }
    }
    project(&weights.attn_output, &weights.attn_output_bias, &mixed)
}

/// One token's attention as StreamingLLM describes it: the cache holds the first and the latest tokens, keys unrotated, and each is
/// rotated for its place in the cache, whatever it was in the text.
fn stream(
    attention: &Attention,
    factors: Option<&[f32]>,
    cache: &Cache,
    (sinks, window): (usize, usize),
    at: usize,
    queries: &[f32],
) -> Vec<f32> {
    let (kv_heads, dim) = (attention.kv_heads as usize, attention.key_dim as usize);
    let group = attention.heads as usize / kv_heads;
    let kept: Vec<usize> = (0..=at).filter(|token| *token < sinks || token + window > at).collect();
    let mut mixed = Vec::new();
    for (head, query) in queries.chunks(dim).enumerate() {
        let row = |of: &[f32], token: usize| of[(token * kv_heads + head / group) * dim..][..dim].to_vec();
        let mut query = query.to_vec();
        rotate(&attention.rope, factors, kept.len() - 1, &mut query);
        let mut scores: Vec<f32> = Vec::new();
        for (place, token) in kept.iter().enumerate() {
            let mut key = row(&cache.plain, *token);
            rotate(&attention.rope, factors, place, &mut key);
            let score = attention.scale * dot(&query, &key);
            scores.push(attention.softcap.map_or(score, |cap| cap * (score / cap).tanh()));
        }
        softmax(&mut scores);
        let mut out = vec![0.0; dim];
        for (token, weight) in kept.iter().zip(&scores) {
            out.iter_mut().zip(row(&cache.values, *token)).for_each(|(out, value)| *out += weight * value);
        }
        mixed.extend(out);
    }
    mixed
}

/// Rotates one head.
fn rotate(rope: &Rope, factors: Option<&[f32]>, position: usize, head: &mut [f32]) {
    let half = rope.dims as usize / 2;
    let stretch = match rope.scaling {
        RopeScaling::None => 1.0,
        RopeScaling::Linear { factor } => f64::from(factor),
        other => panic!("{other:?} is not part of the reference"),
    };
    for pair in 0..half {
        let exponent = -2.0 * pair as f64 / f64::from(rope.dims);
        let factor = factors.map_or(1.0, |factors| f64::from(factors[pair]));
        let angle = position as f64 / stretch * f64::from(rope.base).powf(exponent) / factor;
        let (sin, cos) = (angle.sin() as f32, angle.cos() as f32);
        let (a, b) = match rope.layout {
            RopeLayout::Interleaved => (2 * pair, 2 * pair + 1),
            RopeLayout::Halves => (pair, pair + half),
            other => panic!("{other:?}"),
        };
        (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
    }
}
