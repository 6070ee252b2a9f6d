//! The pool of smaller elements, which new requests go to when memory is short: the same operations over a slab of units, for the
//! requests that have blocks there.

use engine_kernels::KvShape;
use memtier::{
    Host, LaunchError, Place, PoolKind, Recorder, StableSpan, StableSpanMut, TableSlice, input, output, table,
};

use super::{
    Cpu, KvLayer,
    attention::{attend_cells, same_pool, write_cells},
};
use crate::operations::{Cache, PassRows};

impl KvLayer {
    /// The layer as it lies in the pool of smaller elements.
    fn in_low(self) -> KvLayer {
        KvLayer { shape: KvShape { format: self.low, ..self.shape }, base: self.low_base, ..self }
    }
}

/// As [`kv_write`](super::kv_write), into the pool of smaller elements.
pub fn low_write<K: PoolKind<Element = u16>, P: Place<Space = Host>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    cache: &mut Cache<'_, '_, K, P>,
    at: PassRows<'_, P>,
    [k, v]: [StableSpan<'_, f32, P>; 2],
    layer: KvLayer,
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    let args = (
        &mut cache.pool.slab_mut(),
        table::<K, _, _>(cache.table.ids()),
        input::<u32, _, _>(at.rows),
        input::<u32, _, _>(at.positions),
        input::<f32, _, _>(k),
        input::<f32, _, _>(v),
    );
    on.host_op(args, move |(slab, table, rows, positions, k, v)| {
        same_pool(slab.pool, table)?;
        write_cells(&cpu, (slab.units, slab.block_units), table, rows, positions, [k, v], layer.in_low())
    })
}

/// As [`attend`](super::attend), to the pool of smaller elements. Leaves the output of requests that have no blocks there alone.
pub fn low_attend<K: PoolKind<Element = u16>, P: Place<Space = Host>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    out: &mut StableSpanMut<'_, f32, P>,
    cache: &Cache<'_, '_, K, P>,
    at: PassRows<'_, P>,
    q: StableSpan<'_, f32, P>,
    layer: KvLayer,
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    let args = (
        output::<f32, _, _>(out),
        &cache.pool.slab(),
        table::<K, _, _>(cache.table.ids()),
        input::<u32, _, _>(at.rows),
        input::<u32, _, _>(at.positions),
        input::<u32, _, _>(at.lengths),
        input::<f32, _, _>(q),
    );
    on.host_op(args, move |(out, slab, table, rows, positions, lengths, q)| {
        same_pool(slab.pool, table)?;
        let width = layer.params.heads * layer.shape.head_dim;
        let mut first = 0;
        while first < rows.len() {
            // A request's tokens lie together.
            let count = rows[first..].iter().take_while(|row| **row == rows[first]).count();
            let tokens = first..first + count;
            if is_here(table, rows[first]) {
                let at = [&rows[tokens.clone()], &positions[tokens.clone()], lengths];
                let part = tokens.start * width..tokens.end * width;
                attend_cells(
                    &cpu,
                    &mut out[part.clone()],
                    (slab.units, slab.block_units),
                    table,
                    at,
                    &q[part],
                    engine_kernels::Views::default(),
                    layer.in_low(),
                )?;
            }
            first += count;
        }
        Ok(())
    })
}

fn is_here(table: TableSlice<'_>, row: u32) -> bool {
    table.row(row as usize).and_then(<[u32]>::first).is_some_and(|id| *id != engine_kernels::HOLE)
}
