//! What the numbered examples share: a model of two matrices, which is enough to have every tier.

use memtier::{BlockId, PoolKind, Slab, SlabMut};
use memtier::{
    BlockPool, Blocks, Bytes, Engine, Fits, GlobalKv, Host, Input, Is, LaunchError, Loading, PageTable, Place,
    PoolSpec, Recorder, SameElement, StableSpanMut, StreamSpec, TableSpec, Tokens, graph_captured, input, output,
    table, tier,
};

/// The numbers that shapes are made of.
#[derive(Clone, Copy, Debug)]
pub struct Dims {
    /// Elements of a row.
    pub hidden: usize,
    /// Sequences.
    pub max_batch: usize,
}

/// One matrix, read-only while serving.
#[tier(ModelResident, dims = Dims)]
pub struct Weights {
    /// What rows are scaled with.
    #[shape(hidden)]
    pub scale: f32,
}

/// What every step reads and writes.
#[tier(EnginePersistent, dims = Dims)]
pub struct Workspace {
    /// One row a sequence.
    #[shape(max_batch, hidden)]
    pub rows: f32,
    /// One result a sequence.
    #[shape(max_batch, hidden)]
    pub out: f32,
}

/// Everything the engine owns for one model.
#[graph_captured]
pub struct Toy {
    /// Weights.
    pub weights: Weights,
    /// Workspace.
    pub work: Workspace,
    /// One value a token.
    pub kv: BlockPool<GlobalKv<f32>>,
    /// Which blocks each sequence has.
    pub table: PageTable<GlobalKv<f32>>,
}

/// Eight elements a row, two sequences.
pub const DIMS: Dims = Dims { hidden: 8, max_batch: 2 };

/// Four tokens a block, a row of eight elements a token; two blocks from the start, eight in the end.
pub const POOL: PoolSpec = PoolSpec {
    per_block: Tokens::new(4),
    block_elements: 4 * 8,
    floor: Blocks::new(2),
    initial: Blocks::new(2),
    most: Blocks::new(8),
    step: Blocks::new(2),
};

/// The sizes of a [`Toy`].
pub fn spec() -> ToySpec {
    ToySpec { weights: DIMS, work: DIMS, kv: POOL, table: TableSpec { rows: DIMS.max_batch, columns: 4 } }
}

/// Declares a [`Toy`] and a stream.
pub fn declare(engine: &mut Engine<Loading>) -> (ToyLines, memtier::Line<memtier::Stream<Host>>) {
    (engine.declare_bundle::<Toy>(spec()), engine.declare(StreamSpec { scratch: Bytes::kib(4) }))
}

/// `out[i] = scale[i % scale.len()] * x[i]`: how a CPU kernel is wrapped. Spans are checked, the body is safe code over
/// slices; the same function runs eagerly and inside a capture.
///
/// # Errors
/// [`LaunchError::Shape`] when `out` and `x` differ in length.
pub fn scale<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    x: impl Input<f32, P>,
    scale: impl Input<f32, P>,
) -> Result<(), LaunchError> {
    on.host_op((output::<f32, _, _>(out), input::<f32, _, _>(x), input::<f32, _, _>(scale)), |(out, x, scale)| {
        if out.len() != x.len() {
            return Err(LaunchError::Shape { what: "scale", expected: out.len(), found: x.len() });
        }
        out.iter_mut().zip(x).zip(scale.iter().cycle()).for_each(|((out, x), scale)| *out = scale * x);
        Ok(())
    })
}

/// Writes each row of `values` into the first block of its sequence.
///
/// # Errors
/// [`LaunchError`].
pub fn write_first<K: PoolKind<Element = f32>, P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    slab: &mut SlabMut<'_, K, impl Fits<P>>,
    ids: impl Input<BlockId<K>, P>,
    values: impl Input<f32, P>,
) -> Result<(), LaunchError> {
    on.host_op((slab, table::<K, _, _>(ids), input::<f32, _, _>(values)), |(slab, table, values)| {
        let width = values.len() / table.shape.rows;
        for (row, values) in values.chunks_exact(width).enumerate() {
            let first = table.row(row).and_then(|ids| ids.first());
            // A hole is no block: `u32::MAX` lies outside of every slab.
            let start = first.map_or(usize::MAX, |id| (*id as usize).saturating_mul(slab.block_units));
            if let Some(block) = slab.units.get_mut(start..).and_then(|block| block.get_mut(..width)) {
                block.copy_from_slice(values);
            }
        }
        Ok(())
    })
}

/// Reads the first block of each sequence back.
///
/// # Errors
/// [`LaunchError`].
pub fn read_first<K: PoolKind<Element = f32>, P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    slab: &Slab<'_, K, impl Fits<P>>,
    ids: impl Input<BlockId<K>, P>,
) -> Result<(), LaunchError> {
    on.host_op((output::<f32, _, _>(out), slab, table::<K, _, _>(ids)), |(out, slab, table)| {
        let width = out.len() / table.shape.rows;
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            let first = table.row(row).and_then(|ids| ids.first());
            let start = first.map_or(usize::MAX, |id| (*id as usize).saturating_mul(slab.block_units));
            match slab.units.get(start..).and_then(|block| block.get(..width)) {
                Some(block) => out.copy_from_slice(block),
                None => out.fill(0.0),
            }
        }
        Ok(())
    })
}
