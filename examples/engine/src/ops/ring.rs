//! The latest tokens in f16, in a ring for each sequence, beside a cache of smaller elements that has them, too.

use engine_kernels::{HOLE, KvCache, KvFormat, KvShape, Ring, RingOf, Views};
use half::slice::HalfFloatSliceExt;
use memtier::{Host, LaunchError, Place, PoolKind, Recorder, StableSpan, StableSpanMut, f16, input, output, table};

use super::{
    Cpu, KvLayer, Look, MAX_ROWS,
    attention::{attend_cells, looking, same_pool, sinks, write_cells, write_into},
};
use crate::{
    arch::RingArch,
    operations::{Cache, PassRows},
};

impl KvLayer {
    /// The layer as it lies in a ring: one block of as many tokens as the ring has.
    fn in_ring(self, ring: RingArch) -> KvLayer {
        let shape = KvShape { block_tokens: ring.tokens, format: KvFormat::F16, ..self.shape };
        KvLayer { shape, base: self.ring_base, ..self }
    }
}

/// As [`kv_write`](super::kv_write), into rings: position p goes to the slot p modulo the ring's tokens.
pub fn ring_write<K: PoolKind<Element = f16>, P: Place<Space = Host>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    rings: &mut Cache<'_, '_, K, P>,
    at: PassRows<'_, P>,
    new: [StableSpan<'_, f32, P>; 2],
    (ring, layer): (RingArch, KvLayer),
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    write_into(on, rings, at, new, move |(units, stride), table, [rows, positions], [k, v]| {
        let width = k.len() / rows.len().max(1);
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

/// As [`attend`](super::attend): each token sees the latest ones in its ring, and those before in the cache.
#[allow(clippy::too_many_arguments, reason = "an output, two caches, and two sorts of queries")]
pub fn ring_attend<K: PoolKind<Element = f16>, R: PoolKind<Element = f16>, P: Place<Space = Host>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    out: &mut StableSpanMut<'_, f32, P>,
    cache: &Cache<'_, '_, K, P>,
    rings: &Cache<'_, '_, R, P>,
    at: PassRows<'_, P>,
    q: StableSpan<'_, f32, P>,
    look: Option<Look<'_, P>>,
    (ring, layer): (RingArch, KvLayer),
) -> Result<(), LaunchError> {
    let (cpu, (q_sinks, streaming)) = (cpu.clone(), looking(q, look));
    let args = (
        output::<f32, _, _>(out),
        &cache.pool.slab(),
        table::<K, _, _>(cache.table.ids()),
        &rings.pool.slab(),
        table::<R, _, _>(rings.table.ids()),
        input::<u32, _, _>(at.rows),
        input::<u32, _, _>(at.positions),
        input::<u32, _, _>(at.lengths),
        input::<u32, _, _>(at.starts),
        input::<f32, _, _>(q),
        input::<f32, _, _>(q_sinks),
    );
    let layer = layer.within(streaming);
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
        let ring = Some(Ring { cache, latest: ring.latest as u32, sequences });
        let (units, stride) = (slab.units.reinterpret_cast(), slab.block_units);
        let views = Views { sinks: sinks(streaming, q_sinks), ring };
        attend_cells(&cpu, out, (units, stride), table, [rows, positions, lengths], q, views, layer)
    })
}
