//! One token's norm, projection, rotation and cache write, in one launch.

use memtier::{
    BlockId, Cuda, Fits, Input, Is, LaunchError, Place, PoolKind, Recorder, SameElement, SlabMut, StableSpanMut, f16,
};

use super::{
    Inputs, Matrix, PagedKv, RopeShape, RopeStyle, aligned, entries::Kernel, expect, narrow, product, require,
};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
};

/// The most elements of a row: a block keeps them in shared memory, in bf16.
const MOST_COLUMNS: usize = 24 << 10;

/// [`project`](super::project) and [`rope_kv_write`](super::rope_kv_write) of one token, in one launch: for few requests it is launches
/// that take the time.
///
/// `matrices` are those of queries, keys and values, and `x` the residual stream with the norm in front of them. The rotated queries
/// go to `q`, heads x head_dim; keys and values to position `positions[0]` of row `rows[0]` of the page table, unless it has no page
/// there. There are no norms of heads here.
///
/// # Errors
/// [`LaunchError::Shape`] and [`LaunchError::Unsupported`] name what does not fit: more than one token, inputs without a norm.
#[allow(clippy::too_many_arguments, reason = "a layer's pages, its table, its matrices, and three rows of inputs")]
pub fn project_rope_kv_write<K: PoolKind<Element = f16>, P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    q: &mut StableSpanMut<'_, impl SameElement<f16>, impl Fits<P>>,
    slab: &mut SlabMut<'_, K, impl Fits<P>>,
    ids: impl Input<BlockId<K>, P>,
    matrices: [Matrix<'_, P>; 3],
    x: Inputs<'_, P>,
    angles: impl Input<f32, P>,
    [rows, positions]: [impl Input<u32, P>; 2],
    (kv, shape): (PagedKv, RopeShape),
) -> Result<(), LaunchError> {
    let (q, slab, ids) = (q.output::<f16, P>(on), slab.raw(), ids.input());
    let (angles, rows, positions) = (angles.input(), rows.input(), positions.input());
    let PagedKv { kv_heads, head_dim, .. } = kv;
    let RopeShape { heads, pairs, style } = shape;
    let what = "project_rope_kv_write";
    let Inputs::Normed { x, weight, epsilon } = x else {
        return Err(LaunchError::Unsupported {
            what,
            why: "its inputs are normalised on the way: give `Inputs::Normed`",
        });
    };
    let (x, norm) = (Input::<f32, P>::input(x), Input::<f32, P>::input(weight));
    require(
        kv.packed.is_none(),
        what,
        "keys and values are f16 here: use `project` and `rope_kv_write` for packed ones",
    )?;
    require(rows.units() == 1, what, "one token only: use `project` and `rope_kv_write` for more")?;
    let of_slab = (slab.block_units(), slab.block_tokens(), slab.pool());
    let [pool, stride, base, block_tokens, table_rows, table_columns] = kv.pages::<f16>(what, of_slab, ids.meta())?;
    require(pairs <= head_dim / 2, what, "pairs must be at most half a head")?;
    let columns = x.units();
    require(columns <= MOST_COLUMNS, what, "more columns than a block keeps: use `project` and `rope_kv_write`")?;
    require(columns.is_multiple_of(8), what, "columns must be a multiple of 8")?;
    expect("project_rope_kv_write: norm", columns, norm.units())?;
    for (matrix, heads) in matrices.iter().zip([heads, kv_heads, kv_heads]) {
        expect("project_rope_kv_write: matrix columns", columns, matrix.columns)?;
        expect("project_rope_kv_write: matrix rows", product(what, &[heads, head_dim])?, matrix.rows)?;
    }
    expect("project_rope_kv_write: positions", 1, positions.units())?;
    expect("project_rope_kv_write: q", product(what, &[heads, head_dim])?, q.units())?;
    expect("project_rope_kv_write: angles", product(what, &[pairs, 2])?, angles.units())?;
    let [of_q, of_k, of_v] = matrices;
    aligned(what, 16, &[x.addr(), norm.addr(), of_q.addr, of_k.addr, of_v.addr])?;
    aligned(what, 8, &[angles.addr()])?;
    let units = product(what, &[heads.saturating_add(2 * kv_heads), head_dim / 2])?;
    let shared = (columns * 2) as u32;
    let grid = Grid { blocks: (narrow(what, units.div_ceil(4))?, 1, 1), threads: 128, shared };
    let words = [
        q.addr(),
        slab.base(),
        x.addr(),
        norm.addr(),
        of_q.addr,
        of_k.addr,
        of_v.addr,
        angles.addr(),
        ids.addr(),
        rows.addr(),
        positions.addr(),
        pool,
        stride,
        base,
        block_tokens,
        table_rows,
        table_columns,
        narrow(what, heads)?.word(),
        narrow(what, kv_heads)?.word(),
        narrow(what, head_dim)?.word(),
        narrow(what, pairs)?.word(),
        u32::from(style == RopeStyle::Interleaved).word(),
        narrow(what, columns)?.word(),
        epsilon.word(),
    ];
    let streams = [
        q.stream(),
        slab.stream(),
        x.stream(),
        norm.stream(),
        of_q.stream,
        of_k.stream,
        of_v.stream,
        angles.stream(),
        ids.stream(),
        rows.stream(),
        positions.stream(),
    ];
    let kernels = kernels.clone();
    on.launch(&streams, move |queue| {
        // SAFETY: the kernel's own arguments. It reads one row of inputs, the norm, and as many rows of the matrices as there are
        // elements of heads, all checked; it writes `q`, which came from `&mut`, and the slab, borrowed mutably, at a block that the
        // table names: an id of this pool's tickets, pinned by its row and so committed, or a hole. The layer's part of a
        // block was checked to be inside of it. The caller's views (or the graph) keep all of it.
        unsafe { launch(queue, kernels.function(Kernel::ProjectHeads), grid, &words) }
    })
}
