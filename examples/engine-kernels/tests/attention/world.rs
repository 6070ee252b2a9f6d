//! A cache with sequences in it, and attention to it in f64, straightforwardly.

use engine_kernels::{
    AttentionParams, HOLE, Isa, KvCache, KvCell, KvFormat, KvSequence, KvShape, Query, Threads, attend, bf16_to_f32,
    f16_to_f32, f32_to_f16, kv_write,
};

use crate::common::Rng;

/// A cache of one layer inside of a larger slab, and sequences in it.
pub(super) struct World {
    pub(super) shape: KvShape,
    pub(super) slab: Vec<u16>,
    pub(super) base: usize,
    pub(super) stride: usize,
    pub(super) tables: Vec<Vec<u32>>,
    pub(super) tokens: Vec<u32>,
    /// The rows as written: for each sequence and position, all heads.
    pub(super) keys: Vec<Vec<f32>>,
    pub(super) values: Vec<Vec<f32>>,
}

impl World {
    /// Sequences of the given lengths, their blocks scattered over the slab; all else is NaN.
    pub(super) fn random(rng: &mut Rng, shape: KvShape, lengths: &[usize], isa: Isa) -> World {
        World::with_outlier(rng, shape, lengths, isa, 1.0)
    }

    /// The same; one dimension of each head is so many times larger.
    pub(super) fn with_outlier(rng: &mut Rng, shape: KvShape, lengths: &[usize], isa: Isa, times: f32) -> World {
        let threads = Threads::new(2).unwrap();
        let elements = shape.block_units().unwrap();
        let blocks: usize = lengths.iter().map(|len| len.div_ceil(shape.block_tokens) + 1).sum();
        let (base, stride) = (3 * elements + 7, elements + 5);
        let mut free: Vec<u32> = (0..blocks as u32).collect();
        let mut world = World {
            shape,
            slab: vec![0x7e01; base + blocks * stride],
            base,
            stride,
            tables: Vec::new(),
            tokens: lengths.iter().map(|len| *len as u32).collect(),
            keys: Vec::new(),
            values: Vec::new(),
        };
        for len in lengths {
            let table: Vec<u32> =
                (0..len.div_ceil(shape.block_tokens)).map(|_| free.swap_remove(rng.below(free.len()))).collect();
            let row = shape.kv_heads * shape.head_dim;
            let (mut keys, mut values) = (rng.activations(len * row), rng.activations(len * row));
            for rows in [&mut keys, &mut values] {
                rows.iter_mut().skip(13).step_by(shape.head_dim).for_each(|x| *x *= times);
            }
            let cells: Vec<KvCell> = (0..*len).map(|position| world.cell(&table, position)).collect();
            let (base, stride) = (world.base, world.stride);
            kv_write(&threads, isa, &mut world.slab, base, stride, shape, &cells, &keys, &values).unwrap();
            world.tables.push(table);
            world.keys.push(keys);
            world.values.push(values);
        }
        world
    }

    pub(super) fn cell(&self, table: &[u32], position: usize) -> KvCell {
        let slot = (position % self.shape.block_tokens) as u32;
        KvCell { block: table[position / self.shape.block_tokens], slot }
    }

    pub(super) fn cache(&self) -> KvCache<'_> {
        KvCache { slab: &self.slab, base: self.base, stride: self.stride, shape: self.shape }
    }

    pub(super) fn attend(
        &self,
        threads: &Threads,
        isa: Isa,
        params: AttentionParams,
        queries: &[Query],
        q: &[f32],
    ) -> Vec<f32> {
        let sequences: Vec<KvSequence<'_>> = self
            .tables
            .iter()
            .zip(&self.tokens)
            .map(|(blocks, tokens)| KvSequence { blocks, tokens: *tokens })
            .collect();
        let mut out = vec![f32::NAN; q.len()];
        attend(threads, isa, params, self.cache(), &sequences, queries, q, &mut out).unwrap();
        out
    }

    /// What is stored of a key (`half` 0) or a value (1), read by the layout that the crate documents.
    pub(super) fn stored(&self, half: usize, sequence: usize, position: usize, kv_head: usize, dim: usize) -> f64 {
        let KvShape { kv_heads, head_dim, block_tokens, format } = self.shape;
        let cell = self.cell(&self.tables[sequence], position);
        let head = self.shape.block_units().unwrap() / (2 * kv_heads);
        let start = self.base + cell.block as usize * self.stride + (half * kv_heads + kv_head) * head;
        let byte_at = |at: usize| self.slab[start..start + head][at / 2].to_le_bytes()[at % 2];
        let half_at = |at: usize| u16::from_le_bytes([byte_at(at), byte_at(at + 1)]);
        let slot = cell.slot as usize;
        let element = if half == 0 { dim * block_tokens + slot } else { slot * head_dim + dim };
        // As it is read: in f16.
        let rounded = |exact: f32| f64::from(f16_to_f32(f32_to_f16(exact)));
        let scale = |bits: usize, groups: usize, group: usize| {
            let scales = head_dim * block_tokens * bits / 8;
            let index = if half == 0 { group * block_tokens + slot } else { slot * groups + group };
            f16_to_f32(half_at(scales + 2 * index))
        };
        match format {
            KvFormat::F16 => f64::from(f16_to_f32(half_at(2 * element))),
            KvFormat::Bf16 => rounded(bf16_to_f32(half_at(2 * element))),
            KvFormat::Fp8 => {
                let byte = byte_at(element);
                let bits = u16::from(byte & 0x80) << 8 | u16::from(byte & 0x7f) << 7;
                rounded(f16_to_f32(bits) * scale(8, 1, 0))
            }
            KvFormat::Q8_0 => rounded(f32::from(byte_at(element) as i8) * scale(8, head_dim / 32, dim / 32)),
            KvFormat::Nvfp4 => {
                let (group, within) = (dim / 32, dim % 32);
                let pair = group * 16 + within % 16;
                let byte = byte_at(if half == 0 { pair * block_tokens + slot } else { slot * head_dim / 2 + pair });
                let bits = if within < 16 { byte & 15 } else { byte >> 4 };
                let size = [0.0f32, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(bits & 7)];
                // Of a group of 32, two bytes; behind the groups, two halves of an f32.
                let groups = head_dim / 32;
                let unit = |index: usize| {
                    let at = if half == 0 { index * block_tokens + slot } else { slot * (groups + 2) + index };
                    let at = head_dim * block_tokens / 2 + 2 * at;
                    [byte_at(at), byte_at(at + 1)]
                };
                let e4m3 = unit(group)[within / 16];
                let of_group = f16_to_f32(u16::from(e4m3) << 7) * 256.0;
                let [[a, b], [c, d]] = [unit(groups), unit(groups + 1)];
                let of_row = f32::from_le_bytes([a, b, c, d]);
                rounded(of_group * of_row * if bits & 8 == 0 { size } else { -size })
            }
            KvFormat::Q4_0 | KvFormat::Q4_0Rotated => {
                let (group, within) = (dim / 32, dim % 32);
                let pair = group * 16 + within % 16;
                let byte = byte_at(if half == 0 { pair * block_tokens + slot } else { slot * head_dim / 2 + pair });
                let nibble = if within < 16 { byte & 15 } else { byte >> 4 };
                rounded((f32::from(nibble) - 8.0) * scale(4, head_dim / 32, group))
            }
        }
    }

    /// What is stored of a key or a value, as it was before it was rotated.
    pub(super) fn kept(&self, half: usize, sequence: usize, position: usize, kv_head: usize) -> Vec<f64> {
        let dims = self.shape.head_dim;
        let row: Vec<f64> = (0..dims).map(|dim| self.stored(half, sequence, position, kv_head, dim)).collect();
        match self.shape.format {
            KvFormat::Q4_0Rotated => (0..dims).map(|dim| hadamard(dims, dim, |other| row[other])).collect(),
            _ => row,
        }
    }

    /// One row, straightforwardly, in f64.
    pub(super) fn reference(&self, params: AttentionParams, query: Query, q: &[f32]) -> Vec<f64> {
        self.reference_with(params, query, q, (0, q), usize::MAX)
    }

    /// The same; positions from `first` on as they were written, rounded to f16.
    pub(super) fn reference_with_ring(
        &self,
        params: AttentionParams,
        query: Query,
        q: &[f32],
        first: usize,
    ) -> Vec<f64> {
        self.reference_with(params, query, q, (0, q), first)
    }

    /// The same; the first positions are seen with other queries where they left the window.
    pub(super) fn reference_with_sinks(
        &self,
        params: AttentionParams,
        query: Query,
        q: &[f32],
        sinks: (usize, &[f32]),
    ) -> Vec<f64> {
        self.reference_with(params, query, q, sinks, usize::MAX)
    }

    pub(super) fn reference_with(
        &self,
        params: AttentionParams,
        query: Query,
        q: &[f32],
        (sinks, q_sinks): (usize, &[f32]),
        first: usize,
    ) -> Vec<f64> {
        let (dim, sequence) = (self.shape.head_dim, query.sequence as usize);
        let mut out = Vec::new();
        for (head, (q, q_sinks)) in q.chunks_exact(dim).zip(q_sinks.chunks_exact(dim)).enumerate() {
            let kv_head = head / (params.heads / self.shape.kv_heads);
            let row = |half: usize, p: usize| match p < first {
                true => self.kept(half, sequence, p, kv_head),
                false => {
                    let rows = if half == 0 { &self.keys[sequence] } else { &self.values[sequence] };
                    let row = &rows[(p * self.shape.kv_heads + kv_head) * dim..][..dim];
                    row.iter().map(|value| f64::from(f16_to_f32(f32_to_f16(*value)))).collect()
                }
            };
            let mut weights = Vec::new();
            for p in 0..=query.position as usize {
                let outside = params.window.is_some_and(|window| p + window as usize <= query.position as usize);
                if (outside && p >= sinks) || self.tables[sequence][p / self.shape.block_tokens] == HOLE {
                    continue;
                }
                let q = if outside { q_sinks } else { q };
                let dot: f64 = q.iter().zip(row(0, p)).map(|(q, key)| f64::from(*q) * key).sum();
                let mut score = dot * f64::from(params.scale);
                if let Some(cap) = params.softcap {
                    score = f64::from(cap) * (score / f64::from(cap)).tanh();
                }
                weights.push((row(1, p), score));
            }
            let max = weights.iter().fold(f64::NEG_INFINITY, |max, (_, score)| max.max(*score));
            let total: f64 = weights.iter().map(|(_, score)| (score - max).exp()).sum();
            for d in 0..dim {
                let sum: f64 = weights.iter().map(|(value, score)| (score - max).exp() * value[d]).sum();
                out.push(if weights.is_empty() { 0.0 } else { sum / total });
            }
        }
        out
    }
}

/// Dimension `dim` of a rotated row, from the definition: Sylvester's matrices, of the largest power of two that divides the row.
pub(super) fn hadamard(dims: usize, dim: usize, row: impl Fn(usize) -> f64) -> f64 {
    let width = 1 << dims.trailing_zeros();
    let (first, dim) = (dim / width * width, dim % width);
    let sign = |other: usize| if (dim & other).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    (0..width).map(|other| sign(other) * row(first + other)).sum::<f64>() / (width as f64).sqrt()
}
