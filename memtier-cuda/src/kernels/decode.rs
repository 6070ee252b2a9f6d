//! Paged decode attention.

use memtier::{
    BlockId, Cuda, Fits, Input, Is, LaunchError, Place, PoolKind, Recorder, SameElement, Slab, StableSpanMut,
    TableShape, bf16,
};

use super::{entries::Kernel, expect, narrow, product, require};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
};

/// Tokens of one tile of the kernel.
const TILE: usize = 64;
/// Threads of a block of the kernel.
const THREADS: usize = 128;

/// Where one layer's keys and values are in a block: from element `layer_base` on, keys as kv_heads x block tokens x
/// head_dim, then values alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagedKv {
    /// Where the layer begins in a block, in elements.
    pub layer_base: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

impl PagedKv {
    /// Elements of one layer in a block of `block_tokens` tokens, or `None` on overflow.
    pub fn block_elements(&self, block_tokens: usize) -> Option<usize> {
        self.kv_heads.checked_mul(self.head_dim)?.checked_mul(block_tokens)?.checked_mul(2)
    }

    /// Checks a layer against its slab (units and tokens of a block, pool) and its table; gives the table's rows and columns.
    pub(super) fn check(
        &self,
        what: &'static str,
        (block_units, block_tokens, pool): (usize, usize, u64),
        table: TableShape,
    ) -> Result<(u32, u32), LaunchError> {
        let PagedKv { layer_base, kv_heads, head_dim } = *self;
        require(table.pool != 0, what, "the page table names no pool yet: `set` or `clear` a row of it first")?;
        require(table.pool == pool, what, "the page table holds ids of another pool than the slab")?;
        require(head_dim > 0 && head_dim.is_multiple_of(8), what, "a head must have a multiple of 8 elements")?;
        require(kv_heads > 0, what, "there must be a key/value head")?;
        let aligned = layer_base.is_multiple_of(8) && block_units.is_multiple_of(8);
        require(aligned, what, "blocks, and layers in them, must begin on multiples of 8 elements")?;
        let end = self.block_elements(block_tokens).and_then(|elements| elements.checked_add(layer_base));
        require(end.is_some_and(|end| end <= block_units), what, "the layer ends behind its block")?;
        product(what, &[table.columns, block_tokens]).and_then(|tokens| narrow(what, tokens))?;
        Ok((narrow(what, table.rows)?, narrow(what, table.columns)?))
    }
}

/// How a layer attends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DecodeShape {
    /// Query heads, a multiple of the key/value heads.
    pub heads: usize,
    /// What products of queries and keys are multiplied with.
    pub scale: f32,
    /// Tokens that a query sees, its own included; `None`: all.
    pub window: Option<usize>,
    /// The cap of scores.
    pub softcap: Option<f32>,
    /// Blocks that share the tokens of a sequence. The result depends on it (in rounding), and on nothing else of a batch.
    pub shares: usize,
}

/// What [`paged_decode`] works in.
pub struct DecodeWork<'x, 's, P> {
    /// Partial results: at least [`DecodeShape::partial_units`]; the contents do not matter.
    pub partial: &'x mut StableSpanMut<'s, f32, P>,
    /// Counters: at least [`DecodeShape::counters`]. Zero before the first launch; every launch leaves them zero.
    pub arrived: &'x mut StableSpanMut<'s, u32, P>,
}

impl DecodeShape {
    /// Shares that fill the device for `batch` sequences of up to `context` tokens.
    pub fn shares_for(kernels: &Kernels, batch: usize, kv_heads: usize, context: usize) -> usize {
        let wanted = (kernels.multiprocessors() as usize).saturating_mul(4);
        let blocks = batch.saturating_mul(kv_heads).max(1);
        wanted.div_ceil(blocks).min(context.div_ceil(TILE)).clamp(1, 128)
    }

    /// f32 elements of [`DecodeWork::partial`] for `batch` sequences, or `None` on overflow.
    pub fn partial_units(&self, batch: usize, head_dim: usize) -> Option<usize> {
        batch.checked_mul(self.heads)?.checked_mul(self.shares)?.checked_mul(head_dim.checked_add(2)?)
    }

    /// Elements of [`DecodeWork::arrived`] for `batch` sequences, or `None` on overflow.
    pub fn counters(&self, batch: usize, kv_heads: usize) -> Option<usize> {
        let (_, groups) = groups(self.heads.checked_div(kv_heads)?);
        batch.checked_mul(kv_heads)?.checked_mul(groups)
    }
}

/// Query heads that one block handles, of `group` that share a key/value head; and how many blocks that makes.
fn groups(group: usize) -> (usize, usize) {
    let together = group.next_power_of_two().clamp(1, 8);
    (together, group.div_ceil(together))
}

fn kernel(head_dim: usize, together: usize) -> Result<Kernel, LaunchError> {
    use Kernel as K;
    let table = [
        (64, [K::DecodeD64G1, K::DecodeD64G2, K::DecodeD64G4, K::DecodeD64G8]),
        (128, [K::DecodeD128G1, K::DecodeD128G2, K::DecodeD128G4, K::DecodeD128G8]),
        (256, [K::DecodeD256G1, K::DecodeD256G2, K::DecodeD256G4, K::DecodeD256G8]),
    ];
    let found = table.iter().find(|(dim, _)| *dim == head_dim);
    let why = "heads of 64, 128 and 256 elements are served";
    let (_, by_group) = found.ok_or(LaunchError::Unsupported { what: "paged_decode: head_dim", why })?;
    Ok(by_group[together.trailing_zeros() as usize])
}

/// Attention of one query a sequence to its pages: `q` and `out` are batch x heads x head_dim, `rows` names the page table
/// row of each sequence, `lengths` its tokens, the query's own included. A sequence of length zero, one whose row is not in
/// the table, and one whose pages are all holes get zeros.
///
/// # Errors
/// [`LaunchError::Shape`] and [`LaunchError::Unsupported`] name what does not fit.
#[allow(clippy::too_many_arguments, reason = "a layer's pages, its table, its workspace, and three rows of inputs")]
pub fn paged_decode<K: PoolKind<Element = bf16>, P: Place<Space: Is<Cuda>>, W: Fits<P>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    work: DecodeWork<'_, '_, W>,
    q: impl Input<bf16, P>,
    slab: &Slab<'_, K, impl Fits<P>>,
    ids: impl Input<BlockId<K>, P>,
    [rows, lengths]: [impl Input<u32, P>; 2],
    (kv, shape): (PagedKv, DecodeShape),
) -> Result<(), LaunchError> {
    let (out, slab, ids, q) = (out.output::<bf16, P>(on), slab.raw(), ids.input(), q.input());
    let (partial, arrived) = (work.partial.output::<f32, P>(on), work.arrived.output::<u32, P>(on));
    let (rows, lengths) = (rows.input(), lengths.input());
    let PagedKv { layer_base, kv_heads, head_dim } = kv;
    let DecodeShape { heads, scale, window, softcap, shares } = shape;
    let (what, batch) = ("paged_decode", rows.units());
    let table = kv.check(what, (slab.block_units(), slab.block_tokens(), slab.pool()), ids.meta())?;
    require(heads > 0 && heads.is_multiple_of(kv_heads), what, "query heads must be a multiple of key/value heads")?;
    require(shares > 0, what, "there must be at least one share")?;
    require(window != Some(0), what, "a window of no tokens sees nothing: use `None` for no window")?;
    let (together, groups) = groups(heads / kv_heads);
    let kernel = kernel(head_dim, together)?;
    expect("paged_decode: lengths", batch, lengths.units())?;
    expect("paged_decode: q", product(what, &[batch, heads, head_dim])?, q.units())?;
    expect("paged_decode: out", q.units(), out.units())?;
    if shares > 1 {
        let needed = (shape.partial_units(batch, head_dim), shape.counters(batch, kv_heads));
        at_least("paged_decode: partial", needed.0, partial.units())?;
        at_least("paged_decode: arrived", needed.1, arrived.units())?;
    }
    if batch == 0 {
        return Ok(());
    }
    let blocks = (narrow(what, shares)?, narrow(what, kv_heads * groups)?, narrow(what, batch)?);
    let fits = blocks.1 <= 65_535 && blocks.2 <= 65_535;
    require(fits, what, "a launch takes at most 65535 sequences, and as many key/value heads")?;
    let shared = (together * head_dim + together * TILE + 3 * together + THREADS * 8) * 4;
    let grid = Grid { blocks, threads: THREADS as u32, shared: shared as u32 };
    let log2e = std::f32::consts::LOG2_E;
    let words = [
        out.addr(),
        partial.addr(),
        arrived.addr(),
        q.addr(),
        slab.base(),
        ids.addr(),
        rows.addr(),
        lengths.addr(),
        slab.block_units() as u64,
        layer_base as u64,
        narrow(what, slab.block_tokens())?.word(),
        table.0.word(),
        table.1.word(),
        narrow(what, kv_heads)?.word(),
        narrow(what, heads / kv_heads)?.word(),
        narrow(what, window.unwrap_or(0))?.word(),
        (scale * log2e).word(),
        (softcap.unwrap_or(0.0) * log2e).word(),
    ];
    let streams = [
        out.stream(),
        partial.stream(),
        arrived.stream(),
        q.stream(),
        slab.stream(),
        ids.stream(),
        rows.stream(),
        lengths.stream(),
    ];
    let kernels = kernels.clone();
    on.launch(&streams, move |queue| {
        // SAFETY: the kernel's own arguments. It writes `out` and the workspace, which came from three `&mut` and are as
        // long as checked for this grid, and reads what the other spans hold; of the slab it reads blocks that the table
        // names: the ids of this pool's tickets, pinned by their rows and so committed, or holes. Lengths are cut to the
        // table's columns, rows to its rows. The caller's views (or the graph) keep all of it.
        unsafe { launch(queue, kernels.function(kernel), grid, &words) }
    })
}

fn at_least(what: &'static str, needed: Option<usize>, found: usize) -> Result<(), LaunchError> {
    let expected = needed.ok_or(LaunchError::Unsupported { what, why: "its size overflows" })?;
    if found >= expected { Ok(()) } else { Err(LaunchError::Shape { what, expected, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_heads_are_grouped_in_powers_of_two() {
        let grouped = [1, 2, 3, 4, 5, 8, 9, 16].map(groups);
        assert_eq!(grouped, [(1, 1), (2, 1), (4, 1), (4, 1), (8, 1), (8, 1), (8, 2), (8, 2)]);
        assert_eq!(kernel(128, 4), Ok(Kernel::DecodeD128G4));
        assert!(kernel(96, 1).is_err());
    }

    #[test]
    fn a_layer_that_ends_behind_its_block_is_refused() {
        let kv = PagedKv { layer_base: 8, kv_heads: 2, head_dim: 64 };
        let table = TableShape { rows: 1, columns: 4, pool: 3 };
        let units = kv.block_elements(16).unwrap();
        assert!(kv.check("test", (units, 16, 3), table).is_err());
        assert_eq!(kv.check("test", (units + 8, 16, 3), table), Ok((1, 4)));
        assert!(kv.check("test", (units + 8, 16, 4), table).is_err());
        assert!(kv.check("test", (units + 8, 16, 0), TableShape { pool: 0, ..table }).is_err());
    }
}
