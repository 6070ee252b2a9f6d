//! Paged decode attention.

use memtier::{
    BlockId, Cuda, Fits, Input, Is, LaunchError, Place, PoolKind, Recorder, SameElement, Slab, StableSpanMut, bf16,
};

use super::{
    KvElement, PagedKv, aligned,
    entries::Kernel,
    expect, narrow,
    paged::{Attending, Cache, join},
    product, require,
};
use crate::{
    Kernels,
    launch::{Grid, launch},
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
        let Ok(Variant { tokens, .. }) = variant(Cache::Bf16, kv.head_dim) else { return 1 };
        let groups = heads.div_ceil(kv.kv_heads.max(1)).div_ceil(TOGETHER);
        shares_for(kernels.multiprocessors() as usize, batch * kv.kv_heads * groups, context.div_ceil(tokens))
    }

    /// f32 elements of [`DecodeWork::partial`] for `batch` sequences, or `None` on overflow.
    pub fn partial_units(&self, batch: usize, head_dim: usize) -> Option<usize> {
        batch.checked_mul(self.heads)?.checked_mul(self.shares)?.checked_mul(head_dim.checked_add(4)?)
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
    /// Bytes of shared memory of a block.
    shared: u32,
    /// Tokens that a block takes at a time.
    tokens: usize,
}

/// Threads of a block.
const THREADS: u32 = 128;

fn variant(cache: Cache, head_dim: usize) -> Result<Variant, LaunchError> {
    let (kernel, tokens) = match (cache, head_dim) {
        (Cache::Bf16, 64) => (Kernel::DecodeD64, 128),
        (Cache::Bf16, 128) => (Kernel::DecodeD128, 64),
        (Cache::Bf16, 256) => (Kernel::DecodeD256, 64),
        (Cache::F16, 64) => (Kernel::DecodeF16D64, 128),
        (Cache::F16, 128) => (Kernel::DecodeF16D128, 64),
        (Cache::F16, 256) => (Kernel::DecodeF16D256, 64),
        (Cache::F8, 64) => (Kernel::DecodeF8D64, 256),
        (Cache::F8, 128) => (Kernel::DecodeF8D128, 128),
        (Cache::F8, 256) => (Kernel::DecodeF8D256, 64),
        _ => {
            let why = "heads of 64, 128 and 256 elements are served";
            return Err(LaunchError::Unsupported { what: "paged_decode: head_dim", why });
        }
    };
    // What a block copies into: three buffers a warp.
    let shared = if head_dim == 256 { 96 << 10 } else { 48 << 10 };
    Ok(Variant { kernel, tokens, shared })
}

/// Attention of one query a sequence to its pages, which hold bf16, f16 or e4m3: `q` (of [`KvElement::Query`]) and `out` are
/// batch x heads x head_dim, `rows` names the page table row of each sequence, `lengths` its tokens, the query's own included. A sequence of length zero, one whose row is not in
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
    q: impl Input<<K::Element as KvElement>::Query, P>,
    slab: &Slab<'_, K, impl Fits<P>>,
    ids: impl Input<BlockId<K>, P>,
    [rows, lengths]: [impl Input<u32, P>; 2],
    (kv, shape): (PagedKv, DecodeShape),
) -> Result<(), LaunchError> {
    let (out, slab, ids, q) = (out.output::<bf16, P>(on), slab.raw(), ids.input(), q.input());
    let (partial, arrived) = (work.partial.output::<f32, P>(on), work.arrived.output::<u32, P>(on));
    let (rows, lengths) = (rows.input(), lengths.input());
    let PagedKv { kv_heads, head_dim, .. } = kv;
    let DecodeShape { heads, scale, window, softcap, shares } = shape;
    let (what, batch) = ("paged_decode", rows.units());
    let pages = (slab.block_units(), slab.block_tokens(), slab.pool());
    let attending = Attending { heads, scale, window, softcap };
    let layer = kv.attention::<K::Element>(what, pages, ids.meta(), attending)?;
    require((1..=MOST_SHARES).contains(&shares), what, "there must be at least one share, and at most 128")?;
    let groups = (heads / kv_heads).div_ceil(TOGETHER);
    let Variant { kernel, shared, .. } = variant(kv.cache::<K::Element>(what)?, head_dim)?;
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
    aligned(what, 16, &[partial.addr()])?;
    let blocks = (narrow(what, shares)?, narrow(what, kv_heads * groups)?, narrow(what, batch)?);
    let fits = blocks.1 <= 65_535 && blocks.2 <= 65_535;
    require(fits, what, "a launch takes at most 65535 sequences, and as many key/value heads")?;
    let grid = Grid { blocks, threads: THREADS, shared };
    let spans =
        [out.addr(), partial.addr(), arrived.addr(), q.addr(), slab.base(), ids.addr(), rows.addr(), lengths.addr()];
    let words: [u64; 19] = join(spans, layer);
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
/// multiprocessor's part of the memory, so what counts is the multiprocessor with the most blocks; the merge costs about an
/// eighth of a step a share. Many blocks balance themselves. (Fitted to sweeps over shares on an H200.)
fn shares_for(multiprocessors: usize, blocks: usize, steps: usize) -> usize {
    let (multiprocessors, blocks, steps) = (multiprocessors.max(1), blocks.max(1), steps.max(1));
    if blocks >= 2 * multiprocessors {
        return 1;
    }
    let cost = |shares: usize| 8 * (blocks * shares).div_ceil(multiprocessors) * steps.div_ceil(shares) + shares;
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
        assert_eq!(shares_for(132, 3, 8), 8);
        assert_eq!(shares_for(132, 1, 1), 1);
    }
}
