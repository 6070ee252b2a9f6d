//! Paged decode attention.

use memtier::{
    BlockId, Cuda, Fits, Input, Is, LaunchError, Place, PoolKind, Recorder, SameElement, Slab, StableSpanMut, bf16,
};

use super::{KvElement, PagedKv, aligned, entries::Kernel, expect, narrow, paged::whole_pages, product, require};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
};

/// Query heads that one block handles: the rows of a matrix instruction.
const TOGETHER: usize = 16;
/// Shares that the last block of a sequence can merge.
const MOST_SHARES: usize = 128;
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
    /// The most blocks that share the tokens of a sequence: a short one has fewer. The result depends on it (in rounding), and on
    /// nothing else of a batch.
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
    /// Shares that use the device well for `batch` sequences of `context` tokens.
    pub fn shares_for(kernels: &Kernels, kv: &PagedKv, heads: usize, batch: usize, context: usize) -> usize {
        let Ok(Variant { tokens, .. }) = variant(false, kv.head_dim) else { return 1 };
        let groups = heads.div_ceil(kv.kv_heads.max(1)).div_ceil(TOGETHER);
        shares_for(kernels.multiprocessors() as usize, batch * kv.kv_heads * groups, context.div_ceil(tokens))
    }

    /// f32 elements of [`DecodeWork::partial`] for `batch` sequences, or `None` on overflow.
    pub fn partial_units(&self, batch: usize, head_dim: usize) -> Option<usize> {
        batch.checked_mul(self.heads)?.checked_mul(self.shares)?.checked_mul(head_dim.checked_add(2)?)
    }

    /// Elements of [`DecodeWork::arrived`] for `batch` sequences, or `None` on overflow.
    pub fn counters(&self, batch: usize, kv_heads: usize) -> Option<usize> {
        let groups = self.heads.checked_div(kv_heads)?.div_ceil(TOGETHER);
        batch.checked_mul(kv_heads)?.checked_mul(groups)
    }
}

/// How the kernel for a head size is launched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Variant {
    kernel: Kernel,
    threads: u32,
    /// Tokens that a block takes at a time.
    tokens: usize,
}

/// Shared memory of a block: what its warps copy into, 48 KiB for every head size.
const SHARED: u32 = 48 << 10;

fn variant(f16: bool, head_dim: usize) -> Result<Variant, LaunchError> {
    match (head_dim, f16) {
        (64, false) => Ok(Variant { kernel: Kernel::DecodeD64, threads: 128, tokens: 128 }),
        (128, false) => Ok(Variant { kernel: Kernel::DecodeD128, threads: 128, tokens: 64 }),
        (256, false) => Ok(Variant { kernel: Kernel::DecodeD256, threads: 64, tokens: 32 }),
        (64, true) => Ok(Variant { kernel: Kernel::DecodeF16D64, threads: 128, tokens: 128 }),
        (128, true) => Ok(Variant { kernel: Kernel::DecodeF16D128, threads: 128, tokens: 64 }),
        (256, true) => Ok(Variant { kernel: Kernel::DecodeF16D256, threads: 64, tokens: 32 }),
        _ => {
            let why = "heads of 64, 128 and 256 elements are served";
            Err(LaunchError::Unsupported { what: "paged_decode: head_dim", why })
        }
    }
}

/// Attention of one query a sequence to its pages, which hold bf16 or f16, and so does `q`: it and `out` are batch x heads x
/// head_dim, `rows` names the page table
/// row of each sequence, `lengths` its tokens, the query's own included. A sequence of length zero, one whose row is not in
/// the table, and one whose pages are all holes get zeros.
///
/// # Errors
/// [`LaunchError::Shape`] and [`LaunchError::Unsupported`] name what does not fit.
#[allow(clippy::too_many_arguments, reason = "a layer's pages, its table, its workspace, and three rows of inputs")]
pub fn paged_decode<K: PoolKind<Element: KvElement>, P: Place<Space: Is<Cuda>>, W: Fits<P>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    work: DecodeWork<'_, '_, W>,
    q: impl Input<K::Element, P>,
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
    require((1..=MOST_SHARES).contains(&shares), what, "there must be at least one share, and at most 128")?;
    require(window != Some(0), what, "a window of no tokens sees nothing: use `None` for no window")?;
    let groups = (heads / kv_heads).div_ceil(TOGETHER);
    let Variant { kernel, threads, .. } = variant(<K::Element as KvElement>::F16, head_dim)?;
    whole_pages(what, slab.block_tokens())?;
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
    aligned(what, 8, &[out.addr(), q.addr()])?;
    let blocks = (narrow(what, shares)?, narrow(what, kv_heads * groups)?, narrow(what, batch)?);
    let fits = blocks.1 <= 65_535 && blocks.2 <= 65_535;
    require(fits, what, "a launch takes at most 65535 sequences, and as many key/value heads")?;
    let grid = Grid { blocks, threads, shared: SHARED };
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
        slab.pool(),
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

/// `blocks` blocks of `steps` steps each with one share, on `multiprocessors` that work alike. One block nearly saturates its
/// multiprocessor's part of the memory, so what counts is the multiprocessor with the most blocks; the merge costs about a
/// third of a step a share. (Fitted to sweeps over shares on an H200.)
fn shares_for(multiprocessors: usize, blocks: usize, steps: usize) -> usize {
    let (multiprocessors, blocks, steps) = (multiprocessors.max(1), blocks.max(1), steps.max(1));
    let cost = |shares: usize| 3 * (blocks * shares).div_ceil(multiprocessors) * steps.div_ceil(shares) + shares;
    (1..=steps.min(MOST_SHARES)).min_by_key(|shares| cost(*shares)).unwrap_or(1)
}

fn at_least(what: &'static str, needed: Option<usize>, found: usize) -> Result<(), LaunchError> {
    let expected = needed.ok_or(LaunchError::Unsupported { what, why: "its size overflows" })?;
    if found >= expected { Ok(()) } else { Err(LaunchError::Shape { what, expected, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fill_the_device_and_no_more() {
        // Enough sequences need none; few of them share; never a share without a step.
        assert_eq!(shares_for(132, 1024, 16), 1);
        assert_eq!(shares_for(132, 256, 64), 1);
        assert_eq!(shares_for(132, 64, 64), 2);
        assert_eq!(shares_for(132, 96, 32), 4);
        assert_eq!(shares_for(132, 8, 128), 16);
        assert_eq!(shares_for(132, 1, 1), 1);
    }
}
