//! Keys and values in eight bits: the pool that new requests go to when memory is short.
//!
//! A head's 32 neighbouring elements share a scale (ggml's Q8_0: an f16 scale and 32 bytes); 16 where the head's dimension is
//! no multiple of 32. Attention unpacks one request's
//! cache at a time into scratch, as f16, and reads that with the usual kernel: slower by the unpacking, which is the price
//! of a cache of little more than half the size.

use engine_kernels::{self as kernels, HOLE, KvCache, KvCell, KvSequence, Query};
use half::{f16, slice::HalfFloatSliceExt};
use memtier::{
    BlockId, Fits, Host, Input, Is, LaunchError, Place, PoolKind, Recorder, SameElement, Slab, SlabMut, StableSpanMut,
    input, output, table,
};

use super::{
    Cpu, KvLayer,
    attention::{locate, same_pool},
    launch,
};

/// Bytes of a scale.
const SCALE: usize = 2;
/// Elements of unpacked keys that are on the stack at a time.
const TILE: usize = 4096;
/// Queries that are listed on the stack.
const QUERIES: usize = 512;

/// Elements that share a scale. Dimensions are multiples of 16.
const fn granule(head_dim: usize) -> usize {
    if head_dim.is_multiple_of(32) { 32 } else { 16 }
}

/// Bytes of one head's row.
const fn row_bytes(head_dim: usize) -> usize {
    head_dim + head_dim.div_ceil(granule(head_dim)) * SCALE
}

impl KvLayer {
    /// Bytes of the layer's keys and values in one block of eight bits an element, or `None` on overflow.
    pub fn low_bytes(&self) -> Option<usize> {
        let row = row_bytes(self.shape.head_dim).checked_mul(self.shape.block_tokens)?;
        row.checked_mul(self.shape.kv_heads)?.checked_mul(2)
    }

    /// Whether the layer's rows fit the tiles here.
    pub fn has_low(&self) -> bool {
        (1..=TILE).contains(&(self.shape.kv_heads * self.shape.head_dim))
    }

    /// Where a head's row of keys (`half` 0) or values (1) is, in bytes from the block's beginning.
    fn low_row(&self, half: usize, head: usize, slot: usize) -> usize {
        let row = (half * self.shape.kv_heads + head) * self.shape.block_tokens + slot;
        self.low_base + row * row_bytes(self.shape.head_dim)
    }
}

/// Rounds a head's row to eight bits.
fn pack_row(values: &[f32], to: &mut [u8]) {
    let granule = granule(values.len());
    for (values, to) in values.chunks(granule).zip(to.chunks_exact_mut(granule + SCALE)) {
        let most = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let scale = f16::from_f32(most / 127.0);
        let inverse = if scale == f16::ZERO { 0.0 } else { 1.0 / scale.to_f32() };
        let (head, bytes) = to.split_at_mut(SCALE);
        head.copy_from_slice(&scale.to_le_bytes());
        for (byte, value) in bytes.iter_mut().zip(values) {
            // Out of range and not a number become the nearest there is.
            *byte = (value * inverse).round() as i8 as u8;
        }
    }
}

/// The reverse.
fn unpack_row(from: &[u8], values: &mut [f32]) {
    let granule = granule(values.len());
    for (values, from) in values.chunks_mut(granule).zip(from.chunks_exact(granule + SCALE)) {
        let scale = f16::from_le_bytes([from[0], from[1]]).to_f32();
        for (value, byte) in values.iter_mut().zip(&from[SCALE..]) {
            *value = f32::from(*byte as i8) * scale;
        }
    }
}

/// As [`kv_write`](super::kv_write), into blocks of eight bits an element.
#[allow(clippy::too_many_arguments, reason = "the slab, the table, and four rows of inputs")]
pub fn low_write<K: PoolKind<Element = u8>, P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    slab: &mut SlabMut<'_, K, impl Fits<P>>,
    ids: impl Input<BlockId<K>, P>,
    rows: impl Input<u32, P>,
    positions: impl Input<u32, P>,
    [k, v]: [impl Input<f32, P>; 2],
    layer: KvLayer,
) -> Result<(), LaunchError> {
    let args = (
        slab,
        table::<K, _, _>(ids),
        input::<u32, _, _>(rows),
        input::<u32, _, _>(positions),
        input::<f32, _, _>(k),
        input::<f32, _, _>(v),
    );
    on.host_op(args, move |(slab, table, rows, positions, k, v)| {
        same_pool(slab.pool, table)?;
        let (dim, width) = (layer.shape.head_dim, layer.shape.kv_heads * layer.shape.head_dim);
        let tokens = rows.iter().zip(positions).zip(k.chunks_exact(width).zip(v.chunks_exact(width)));
        for ((row, position), (k, v)) in tokens {
            let cell = locate(table, *row, *position, layer.shape.block_tokens)?;
            if cell.block == HOLE {
                continue;
            }
            let block = cell.block as usize * slab.block_units;
            for (half, values) in [k, v].into_iter().enumerate() {
                for (head, values) in values.chunks_exact(dim).enumerate() {
                    let at = block + layer.low_row(half, head, cell.slot as usize);
                    let limit = slab.units.len() as u64;
                    let to = slab.units.get_mut(at..at + row_bytes(dim));
                    let to = to.ok_or(LaunchError::Index { what: "cell", limit, found: at as u64 })?;
                    pack_row(values, to);
                }
            }
        }
        Ok(())
    })
}

/// Unpacks the cache of the request in `row` into `cache`, block after block. Does nothing for a row without blocks here.
#[allow(clippy::too_many_arguments, reason = "the slab, the table, the row, and where to")]
pub fn low_unpack<K: PoolKind<Element = u8>, P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    cache: &mut StableSpanMut<'_, impl SameElement<f16>, impl Fits<P>>,
    slab: &Slab<'_, K, impl Fits<P>>,
    ids: impl Input<BlockId<K>, P>,
    lengths: impl Input<u32, P>,
    row: usize,
    layer: KvLayer,
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    let args = (output::<f16, _, _>(cache), slab, table::<K, _, _>(ids), input::<u32, _, _>(lengths));
    on.host_op(args, move |(cache, slab, table, lengths)| {
        same_pool(slab.pool, table)?;
        let (Some(ids), Some(length)) = (table.row(row), lengths.get(row)) else { return Ok(()) };
        if ids.first().is_none_or(|id| *id == HOLE) {
            return Ok(());
        }
        let shape = layer.shape;
        let (dim, width) = (shape.head_dim, shape.kv_heads * shape.head_dim);
        let stride = shape.block_elements().unwrap_or(usize::MAX);
        let at_once = (TILE / width).max(1);
        let mut cells = [KvCell { block: HOLE, slot: 0 }; TILE];
        let (mut keys, mut values) = ([0.0f32; TILE], [0.0f32; TILE]);
        let cache = cache.reinterpret_cast_mut();
        let mut first = 0;
        while first < *length as usize {
            let count = at_once.min(*length as usize - first);
            for (index, token) in (first..first + count).enumerate() {
                let (block, slot) = (token / shape.block_tokens, token % shape.block_tokens);
                cells[index] = KvCell { block: block as u32, slot: slot as u32 };
                let limit = ids.len() as u64;
                let id = ids.get(block).filter(|id| **id != HOLE);
                let id = id.ok_or(LaunchError::Index { what: "block of the row", limit, found: block as u64 })?;
                for (half, to) in [&mut keys, &mut values].into_iter().enumerate() {
                    for (head, to) in to[index * width..(index + 1) * width].chunks_exact_mut(dim).enumerate() {
                        let at = *id as usize * slab.block_units + layer.low_row(half, head, slot);
                        let limit = slab.units.len() as u64;
                        let from = slab.units.get(at..at + row_bytes(dim));
                        unpack_row(from.ok_or(LaunchError::Index { what: "cell", limit, found: at as u64 })?, to);
                    }
                }
            }
            let (keys, values) = (&keys[..count * width], &values[..count * width]);
            kernels::kv_write(&cpu.threads, cpu.isa, cache, 0, stride, shape, &cells[..count], keys, values)
                .map_err(launch)?;
            first += count;
        }
        Ok(())
    })
}

/// Attention of the tokens of the request in `row` to the cache that [`low_unpack`] left. Leaves the others' output alone.
#[allow(clippy::too_many_arguments, reason = "the unpacked cache, the table, the row, and three rows of inputs")]
pub fn low_attend<K: PoolKind<Element = u8>, P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    cache: impl Input<f16, P>,
    ids: impl Input<BlockId<K>, P>,
    [rows, positions, lengths]: [impl Input<u32, P>; 3],
    q: impl Input<f32, P>,
    row: usize,
    layer: KvLayer,
    blocks: std::sync::Arc<[u32]>,
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    let args = (
        output::<f32, _, _>(out),
        input::<f16, _, _>(cache),
        table::<K, _, _>(ids),
        input::<u32, _, _>(rows),
        input::<u32, _, _>(positions),
        input::<u32, _, _>(lengths),
        input::<f32, _, _>(q),
    );
    on.host_op(args, move |(out, cache, table, rows, positions, lengths, q)| {
        let (Some(ids), Some(length)) = (table.row(row), lengths.get(row)) else { return Ok(()) };
        if ids.first().is_none_or(|id| *id == HOLE) {
            return Ok(());
        }
        let KvLayer { shape, params, .. } = layer;
        let stride = shape.block_elements().unwrap_or(usize::MAX);
        let cache = KvCache { slab: cache.reinterpret_cast(), base: 0, stride, shape };
        let sequence = [KvSequence { blocks: &blocks, tokens: *length }];
        let width = params.heads * shape.head_dim;
        // A request's tokens lie together.
        let of_row = |index: &usize| rows[*index] as usize == row;
        let Some(first) = (0..rows.len()).find(of_row) else { return Ok(()) };
        let end = (first..rows.len()).take_while(of_row).count() + first;
        for from in (first..end).step_by(QUERIES) {
            let to = (from + QUERIES).min(end);
            let mut queries = [Query { sequence: 0, position: 0 }; QUERIES];
            for (query, position) in queries.iter_mut().zip(&positions[from..to]) {
                query.position = *position;
            }
            let (queries, q) = (&queries[..to - from], &q[from * width..to * width]);
            let out = &mut out[from * width..to * width];
            kernels::attend(&cpu.threads, cpu.isa, params, cache, &sequence, queries, q, out).map_err(launch)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_back_within_half_a_step() {
        for dim in [16, 32, 48, 64, 128] {
            let values: Vec<f32> = (0..dim).map(|index| ((index * 37 % 101) as f32 - 50.0) * 0.07).collect();
            let mut packed = vec![0xFF; row_bytes(dim)];
            pack_row(&values, &mut packed);
            let mut back = vec![f32::NAN; dim];
            unpack_row(&packed, &mut back);
            for (index, (value, back)) in values.iter().zip(&back).enumerate() {
                let first = index / granule(dim) * granule(dim);
                let step = values[first..first + granule(dim)].iter().fold(0.0f32, |most, value| most.max(value.abs()))
                    / 127.0;
                assert!((value - back).abs() <= 0.5 * step * 1.02, "{value} {back}");
            }
        }
        let mut packed = vec![0xFF; row_bytes(32)];
        pack_row(&[0.0; 32], &mut packed);
        assert!(packed.iter().all(|byte| *byte == 0), "nothing is nothing");
    }

    #[test]
    fn a_block_takes_little_more_than_half() {
        // SmolLM2: 3 heads of 64, blocks of 16 tokens.
        let shape = engine_kernels::KvShape { kv_heads: 3, head_dim: 64, block_tokens: 16 };
        let params = engine_kernels::AttentionParams { heads: 9, scale: 1.0, window: None, softcap: None };
        let layer = KvLayer { shape, base: 0, low_base: 0, params };
        assert_eq!(layer.low_bytes(), Some(2 * 3 * 16 * 68));
        assert_eq!(2 * shape.block_elements().unwrap(), 2 * 2 * 3 * 16 * 64);
        assert_eq!(layer.low_row(1, 2, 15) + row_bytes(64), layer.low_bytes().unwrap(), "the last row ends the block");
    }
}
