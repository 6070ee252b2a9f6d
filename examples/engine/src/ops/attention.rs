//! Paged attention: reads block ids from the page table, keys and values from the slab.

use engine_kernels::{
    self as kernels, AttentionParams, HOLE, KvCache, KvCell, KvFormat, KvSequence, KvShape, Query, Sinks, Views,
};
use half::slice::HalfFloatSliceExt;
use memtier::{
    Host, LaunchError, Place, PoolKind, Recorder, StableSpan, StableSpanMut, TableSlice, f16, input, output, table,
};

use super::{Cpu, launch};
use crate::{
    operations::{Cache, PassRows},
    streaming::Streaming,
};

/// Tokens handled by one kernel call: their queries are listed on the stack.
const TILE: usize = 512;
/// Sequences in one pass: their tables are listed on the stack.
pub const MAX_ROWS: usize = 256;

/// Where a layer's keys and values lie, and how it attends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KvLayer {
    /// Heads, their dimension, tokens of a block, and what the elements are.
    pub shape: KvShape,
    /// Where the layer begins in a block, in units of 16 bits. Blocks hold all layers of their pool.
    pub base: usize,
    /// What the elements are in the pool of smaller ones, where there is one.
    pub low: KvFormat,
    /// Where the layer begins in a block of that pool, in units of 16 bits.
    pub low_base: usize,
    /// Where the layer begins in a ring of unrounded tokens, in units of 16 bits.
    pub ring_base: usize,
    /// Query heads, scale, window and softcap.
    pub params: AttentionParams,
}

pub(super) fn same_pool(slab: u64, table: TableSlice<'_>) -> Result<(), LaunchError> {
    // No row was ever set: every id is a hole.
    if table.shape.pool == slab || table.shape.pool == 0 {
        return Ok(());
    }
    Err(LaunchError::Unsupported { what: "page table", why: "its ids belong to another pool than the slab" })
}

/// Writes the keys and values of a pass's tokens into the blocks that their sequences' rows name. `new` are keys and values, tokens x
/// `kv_heads` x `head_dim`; `at` says where each token belongs.
pub fn kv_write<K: PoolKind<Element = f16>, P: Place<Space = Host>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    cache: &mut Cache<'_, '_, K, P>,
    at: PassRows<'_, P>,
    new: [StableSpan<'_, f32, P>; 2],
    layer: KvLayer,
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    write_into(on, cache, at, new, move |slab, table, [rows, positions], new| {
        write_cells(&cpu, slab, table, rows, positions, new, layer)
    })
}

/// Queues `write`, which gets the units of a cache with those of one block, its table, rows and positions of tokens, and their keys and
/// values.
pub(super) fn write_into<K: PoolKind<Element = f16>, P: Place<Space = Host>>(
    on: &Recorder<P>,
    cache: &mut Cache<'_, '_, K, P>,
    at: PassRows<'_, P>,
    [k, v]: [StableSpan<'_, f32, P>; 2],
    write: impl Fn((&mut [u16], usize), TableSlice<'_>, [&[u32]; 2], [&[f32]; 2]) -> Result<(), LaunchError>
    + Send
    + Sync
    + 'static,
) -> Result<(), LaunchError> {
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
        write((slab.units.reinterpret_cast_mut(), slab.block_units), table, [rows, positions], [k, v])
    })
}

/// Writes into a slab of units, whatever they are.
pub(super) fn write_cells(
    cpu: &Cpu,
    (units, stride): (&mut [u16], usize),
    table: TableSlice<'_>,
    rows: &[u32],
    positions: &[u32],
    [k, v]: [&[f32]; 2],
    layer: KvLayer,
) -> Result<(), LaunchError> {
    let KvLayer { shape, base, .. } = layer;
    let width = shape.kv_heads * shape.head_dim;
    let tiles = rows.chunks(TILE).zip(positions.chunks(TILE)).zip(k.chunks(TILE * width).zip(v.chunks(TILE * width)));
    for ((rows, positions), (k, v)) in tiles {
        let mut cells = [KvCell { block: HOLE, slot: 0 }; TILE];
        for (cell, (row, position)) in cells.iter_mut().zip(rows.iter().zip(positions)) {
            *cell = locate(table, *row, *position, shape.block_tokens)?;
        }
        kernels::kv_write(&cpu.threads, cpu.isa, units, base, stride, shape, &cells[..rows.len()], k, v)
            .map_err(launch)?;
    }
    Ok(())
}

pub(super) fn locate(
    table: TableSlice<'_>,
    row: u32,
    position: u32,
    block_tokens: usize,
) -> Result<KvCell, LaunchError> {
    let limit = table.shape.rows as u64;
    let ids = table.row(row as usize).ok_or(LaunchError::Index { what: "row", limit, found: u64::from(row) })?;
    let (block, slot) = (position as usize / block_tokens, position as usize % block_tokens);
    let (limit, found) = (ids.len() as u64, block as u64);
    let block = *ids.get(block).ok_or(LaunchError::Index { what: "block of the row", limit, found })?;
    Ok(KvCell { block, slot: slot as u32 })
}

/// The queries for the look at the first tokens, of sequences that run past their planned length, and which tokens those are.
pub type Look<'x, P> = (StableSpan<'x, f32, P>, Streaming);

/// Attention of a pass's tokens to their own sequences: `q` and `out` are tokens x heads x head_dim. With a `look`, each token sees the
/// first ones, with its queries, and the latest, with `q`.
#[allow(clippy::too_many_arguments, reason = "an output, a cache, and two sorts of queries")]
pub fn attend<K: PoolKind<Element = f16>, P: Place<Space = Host>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    out: &mut StableSpanMut<'_, f32, P>,
    cache: &Cache<'_, '_, K, P>,
    at: PassRows<'_, P>,
    q: StableSpan<'_, f32, P>,
    look: Option<Look<'_, P>>,
    layer: KvLayer,
) -> Result<(), LaunchError> {
    let (cpu, (q_sinks, streaming)) = (cpu.clone(), looking(q, look));
    let args = (
        output::<f32, _, _>(out),
        &cache.pool.slab(),
        table::<K, _, _>(cache.table.ids()),
        input::<u32, _, _>(at.rows),
        input::<u32, _, _>(at.positions),
        input::<u32, _, _>(at.lengths),
        input::<f32, _, _>(q),
        input::<f32, _, _>(q_sinks),
    );
    let layer = layer.within(streaming);
    on.host_op(args, move |(out, slab, table, rows, positions, lengths, q, q_sinks)| {
        same_pool(slab.pool, table)?;
        let (units, stride) = (slab.units.reinterpret_cast(), slab.block_units);
        let views = Views { sinks: sinks(streaming, q_sinks), ring: None };
        attend_cells(&cpu, out, (units, stride), table, [rows, positions, lengths], q, views, layer)
    })
}

/// What looks at the first tokens: nobody, which is said with the queries there are.
pub(super) fn looking<'x, P: Place>(
    q: StableSpan<'x, f32, P>,
    look: Option<Look<'x, P>>,
) -> (StableSpan<'x, f32, P>, Option<Streaming>) {
    look.map_or((q, None), |(q_sinks, streaming)| (q_sinks, Some(streaming)))
}

/// The same for kernels.
pub(super) fn sinks(streaming: Option<Streaming>, q: &[f32]) -> Option<Sinks<'_>> {
    streaming.map(|streaming| Sinks { count: streaming.sinks as u32, q })
}

impl KvLayer {
    /// The layer as it attends where only the latest tokens stay.
    pub(super) fn within(mut self, streaming: Option<Streaming>) -> KvLayer {
        if let Some(streaming) = streaming {
            self.params.window = Some(streaming.window as u32);
        }
        self
    }
}

/// Attends to a slab of units, whatever they are.
#[allow(clippy::too_many_arguments, reason = "the slab, the table, and five rows of inputs")]
pub(super) fn attend_cells(
    cpu: &Cpu,
    out: &mut [f32],
    (slab, stride): (&[u16], usize),
    table: TableSlice<'_>,
    [rows, positions, lengths]: [&[u32]; 3],
    q: &[f32],
    views: Views<'_>,
    layer: KvLayer,
) -> Result<(), LaunchError> {
    let KvLayer { shape, base, params, .. } = layer;
    let cache = KvCache { slab, base, stride, shape };
    let mut sequences = [KvSequence { blocks: &[], tokens: 0 }; MAX_ROWS];
    for (row, (sequence, tokens)) in sequences.iter_mut().zip(lengths).enumerate() {
        *sequence = KvSequence { blocks: table.row(row).unwrap_or_default(), tokens: *tokens };
    }
    let sequences = &sequences[..lengths.len().min(MAX_ROWS)];
    let width = params.heads * shape.head_dim;
    let tiles = rows.chunks(TILE).zip(positions.chunks(TILE)).zip(q.chunks(TILE * width));
    for (index, (((rows, positions), q), out)) in tiles.zip(out.chunks_mut(TILE * width)).enumerate() {
        let mut queries = [Query { sequence: 0, position: 0 }; TILE];
        for (query, (row, position)) in queries.iter_mut().zip(rows.iter().zip(positions)) {
            *query = Query { sequence: *row, position: *position };
        }
        let queries = &queries[..rows.len()];
        let first = index * TILE * width;
        let sinks = views.sinks.map(|sinks| Sinks { q: &sinks.q[first..first + q.len()], ..sinks });
        let (threads, isa, views) = (&cpu.threads, cpu.isa, Views { sinks, ..views });
        kernels::attend_with(threads, isa, params, views, cache, sequences, queries, q, out).map_err(launch)?;
    }
    Ok(())
}
