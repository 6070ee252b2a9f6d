//! The latest tokens in f16, in a ring for each sequence, beside a cache of smaller elements that has them, too.

use engine_kernels::{HOLE, KvCache, KvFormat, KvShape, Ring, RingOf, Sinks, Views};
use half::slice::HalfFloatSliceExt;
use memtier::{
    BlockId, Fits, Host, Input, Is, LaunchError, Place, PoolKind, Recorder, SameElement, Slab, SlabMut, StableSpanMut,
    f16, input, output, table,
};

use super::{
    Cpu, KvLayer, MAX_ROWS,
    attention::{attend_cells, same_pool, write_cells},
};
use crate::{arch::RingArch, streaming::Streaming};

impl KvLayer {
    /// The layer as it lies in a ring: one block of as many tokens as the ring has.
    fn in_ring(self, ring: RingArch) -> KvLayer {
        let shape = KvShape { block_tokens: ring.tokens, format: KvFormat::F16, ..self.shape };
        KvLayer { shape, base: self.ring_base, ..self }
    }
}

/// As [`kv_write`](super::kv_write), into rings: position p goes to the slot p modulo the ring's tokens.
#[allow(clippy::too_many_arguments, reason = "the slab, the table, and four rows of inputs")]
pub fn ring_write<K: PoolKind<Element = f16>, P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    slab: &mut SlabMut<'_, K, impl Fits<P>>,
    ids: impl Input<BlockId<K>, P>,
    rows: impl Input<u32, P>,
    positions: impl Input<u32, P>,
    [k, v]: [impl Input<f32, P>; 2],
    (ring, layer): (RingArch, KvLayer),
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
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
        let (units, stride, width) = (slab.units.reinterpret_cast_mut(), slab.block_units, k.len() / rows.len().max(1));
        for (first, positions) in positions.chunks(MAX_ROWS).enumerate().map(|(index, part)| (index * MAX_ROWS, part)) {
            let mut slots = [0; MAX_ROWS];
            for (slot, position) in slots.iter_mut().zip(positions) {
                *slot = position % ring.tokens as u32;
            }
            let (tokens, cells) = (first..first + positions.len(), first * width..(first + positions.len()) * width);
            let slots = &slots[..positions.len()];
            let at = [&k[cells.clone()], &v[cells]];
            write_cells(&cpu, (&mut *units, stride), table, &rows[tokens], slots, at, layer.in_ring(ring))?;
        }
        Ok(())
    })
}

/// As [`attend`](super::attend): each token sees the latest ones in its ring, and those before in the cache. `starts` has the first
/// position in each sequence's ring; `q_sinks` are the queries for the look at the sinks, where sequences have any.
#[allow(clippy::too_many_arguments, reason = "two slabs, two tables, and six rows of inputs")]
pub fn ring_attend<K: PoolKind<Element = f16>, R: PoolKind<Element = f16>, P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    slab: &Slab<'_, K, impl Fits<P>>,
    ids: impl Input<BlockId<K>, P>,
    rings: &Slab<'_, R, impl Fits<P>>,
    ring_ids: impl Input<BlockId<R>, P>,
    [rows, positions, lengths, starts]: [impl Input<u32, P>; 4],
    [q, q_sinks]: [impl Input<f32, P>; 2],
    (ring, streaming, mut layer): (RingArch, Option<Streaming>, KvLayer),
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    let args = (
        output::<f32, _, _>(out),
        slab,
        table::<K, _, _>(ids),
        rings,
        table::<R, _, _>(ring_ids),
        input::<u32, _, _>(rows),
        input::<u32, _, _>(positions),
        input::<u32, _, _>(lengths),
        input::<u32, _, _>(starts),
        input::<f32, _, _>(q),
        input::<f32, _, _>(q_sinks),
    );
    if let Some(streaming) = streaming {
        layer.params.window = Some(streaming.window as u32);
    }
    on.host_op(args, move |(out, slab, table, rings, ring_table, rows, positions, lengths, starts, q, q_sinks)| {
        same_pool(slab.pool, table)?;
        same_pool(rings.pool, ring_table)?;
        let KvLayer { shape, base, .. } = layer.in_ring(ring);
        let cache = KvCache { slab: rings.units.reinterpret_cast(), base, stride: rings.block_units, shape };
        let mut sequences = [RingOf { block: &[HOLE], start: 0 }; MAX_ROWS];
        for (row, (sequence, start)) in sequences.iter_mut().zip(starts).enumerate() {
            *sequence = RingOf { block: ring_table.row(row).unwrap_or_default(), start: *start };
        }
        let sequences = &sequences[..lengths.len().min(MAX_ROWS)];
        let sinks = streaming.map(|streaming| Sinks { count: streaming.sinks as u32, q: q_sinks });
        let views = Views { sinks, ring: Some(Ring { cache, latest: ring.latest as u32, sequences }) };
        let (units, stride) = (slab.units.reinterpret_cast(), slab.block_units);
        attend_cells(&cpu, out, (units, stride), table, [rows, positions, lengths], q, views, layer)
    })
}
