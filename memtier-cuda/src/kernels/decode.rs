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
    module::is_90,
};

/// Query heads that one block handles: the columns of a matrix instruction.
const TOGETHER: usize = 8;
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
    /// Shares that use the device well for `batch` sequences of `context` tokens. What the pool holds does not say how the layer is
    /// kept: name e4m3 in `kv` ([`PackedKv`](super::PackedKv)) for a pool of it, too.
    pub fn shares_for(kernels: &Kernels, kv: &PagedKv, heads: usize, batch: usize, context: usize) -> usize {
        let cache = kv.packed.map_or(Cache::Bf16, Cache::from);
        let group = heads.div_ceil(kv.kv_heads.max(1));
        let Ok(Variant { tokens, together, threads, .. }) = variant(kernels.target(), cache, kv.head_dim, group) else {
            return 1;
        };
        let groups = group.div_ceil(together);
        let blocks = batch.saturating_mul(kv.kv_heads).saturating_mul(groups);
        // What one block leaves of its multiprocessor's memory bandwidth: four warps have too few bytes on their way.
        let alone = if threads > 128 { 8 } else { 12 };
        shares_for(kernels.multiprocessors() as usize, (blocks, context.div_ceil(tokens)), alone)
    }

    /// f32 elements of [`DecodeWork::partial`] for `batch` sequences, or `None` on overflow.
    pub fn partial_units(&self, batch: usize, head_dim: usize) -> Option<usize> {
        batch.checked_mul(self.heads)?.checked_mul(self.shares)?.checked_mul(head_dim.checked_add(4)?)
    }

    /// Elements of [`DecodeWork::arrived`] for `batch` sequences, or `None` on overflow: as many as any head size needs, one for each warp.
    pub fn counters(&self, batch: usize, kv_heads: usize) -> Option<usize> {
        let groups = self.heads.checked_div(kv_heads)?.div_ceil(TOGETHER);
        batch.checked_mul(kv_heads)?.checked_mul(groups)?.checked_mul(MOST_WARPS)
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
    /// Query heads that a block handles.
    together: usize,
    /// Threads of a block.
    threads: u32,
}

/// Warps of a block, at most.
const MOST_WARPS: usize = 8;

/// For heads of `head_dim` elements, `group` of which share keys.
fn variant(target: &str, cache: Cache, head_dim: usize, group: usize) -> Result<Variant, LaunchError> {
    // Such heads are common enough for kernels that multiply twice as many of them with each key; others take several blocks.
    let wide = group > TOGETHER && head_dim == 128;
    let kernel = match (cache, head_dim) {
        (Cache::Bf16, 128) if wide => Kernel::DecodeWide,
        (Cache::F16, 128) if wide => Kernel::DecodeF16Wide,
        (Cache::F8, 128) if wide => Kernel::DecodeF8Wide,
        (Cache::I8, 128) if wide => Kernel::DecodeI8Wide,
        (Cache::F4, 128) if wide => Kernel::DecodeF4Wide,
        (Cache::Bf16, 64) => Kernel::DecodeD64,
        (Cache::Bf16, 128) => Kernel::DecodeD128,
        (Cache::Bf16, 256) => Kernel::DecodeD256,
        (Cache::F16, 64) => Kernel::DecodeF16D64,
        (Cache::F16, 128) => Kernel::DecodeF16D128,
        (Cache::F16, 256) => Kernel::DecodeF16D256,
        (Cache::F8, 64) => Kernel::DecodeF8D64,
        (Cache::F8, 128) => Kernel::DecodeF8D128,
        (Cache::F8, 256) => Kernel::DecodeF8D256,
        (Cache::I8, 64) => Kernel::DecodeI8D64,
        (Cache::I8, 128) => Kernel::DecodeI8D128,
        (Cache::I8, 256) => Kernel::DecodeI8D256,
        (Cache::F4, 64) if group <= 4 => Kernel::DecodeF4D64Four,
        (Cache::F4, 128) if group <= 4 => Kernel::DecodeF4D128Four,
        (Cache::F4, 256) if group <= 4 => Kernel::DecodeF4D256Four,
        (Cache::F4, 64) => Kernel::DecodeF4D64,
        (Cache::F4, 128) => Kernel::DecodeF4D128,
        (Cache::F4, 256) => Kernel::DecodeF4D256,
        _ => {
            let why = "heads of 64, 128 and 256 elements are served";
            return Err(LaunchError::Unsupported { what: "paged_decode: head_dim", why });
        }
    };
    // As `Shape` in `decode_tile.cuh` has them: bytes of a row, and of its scales; tokens of a warp's tile, keys and values of one a warp.
    let (row, scales) = match cache {
        Cache::Bf16 | Cache::F16 => (head_dim * 2, 0),
        Cache::F8 => (head_dim, 8),
        Cache::I8 => (head_dim, head_dim / 16),
        Cache::F4 => (head_dim / 2, head_dim / 16 + 8),
    };
    let small = if is_90(target) { row == 32 } else { cache.is_narrow() && head_dim < 256 };
    let buffer = match row {
        512 => 8192,
        _ if small => 2048,
        _ => 4096,
    };
    let long = !cache.is_narrow() && (row == 256 || row == 512 && is_90(target));
    let warps = if long || wide { MOST_WARPS } else { 4 };
    let tokens = buffer / row;
    // (One that takes no more than four never has more.)
    let together = if wide { 2 * TOGETHER } else { TOGETHER };
    // What a warp leaves to the others goes to the same place: sums of each head, which begin in different banks.
    let left = together * (head_dim + 4) * 4;
    let shared = (warps * (2 * (buffer + tokens * scales)).max(left)).next_multiple_of(1 << 10);
    let threads = 32 * warps as u32;
    Ok(Variant { kernel, tokens: warps * tokens, shared: shared as u32, together, threads })
}

/// Attention of one query a sequence to its pages, which hold bf16, f16, e4m3, or what [`PackedKv`](super::PackedKv) names: `q` (of [`KvElement::Query`]) and `out` are
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
    let Variant { kernel, shared, together, threads, .. } =
        variant(kernels.target(), kv.cache::<K::Element>(what)?, head_dim, heads / kv_heads)?;
    let groups = (heads / kv_heads).div_ceil(together);
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
    let all = u64::from(blocks.0) * u64::from(blocks.1) * u64::from(blocks.2);
    let shared = even_shared(kernels.target(), kernels.multiprocessors(), all, shared);
    let grid = Grid { blocks, threads, shared };
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
        // names: the ids of this pool's tickets, pinned by their rows and so committed, or holes. It does so whatever rows and
        // lengths say, which it also reads before kernels in front of it have written them. Lengths are cut to the
        // table's columns, rows to its rows. The caller's views (or the graph) keep all of it.
        unsafe { launch(queue, kernels.function(kernel), grid, &words) }
    })
}

/// `blocks` blocks of `steps` steps each with one share, on `multiprocessors` that work alike. What counts is the multiprocessor with the
/// most blocks: each takes eight for its bytes, and all of them not less than `alone`, since one block may not saturate its part
/// of the memory. The merge costs about an eighth of a step a share. Many blocks balance themselves. Fitted to times of several shares on an
/// H200; `cargo xtask gpu --bench` (`gpu_bars_attention`) prints what the chosen ones take.
fn shares_for(multiprocessors: usize, (blocks, steps): (usize, usize), alone: usize) -> usize {
    let (multiprocessors, blocks, steps) = (multiprocessors.max(1), blocks.max(1), steps.max(1));
    if blocks >= 2 * multiprocessors {
        return 1;
    }
    let step = |shares: usize| alone.max(8 * (blocks * shares).div_ceil(multiprocessors));
    let cost = |shares: usize| step(shares).saturating_mul(steps.div_ceil(shares)).saturating_add(shares);
    (1..=steps.min(MOST_SHARES)).min_by_key(|shares| cost(*shares)).unwrap_or(1)
}

/// Shared memory of a block, so that a multiprocessor takes no more blocks than it must for all of them to run at once: then they lie evenly,
/// also where blocks of the kernel in front or behind are there. Where they need several waves, and where it is the least that a
/// block needs that keeps more away, `least`.
pub(super) fn even_shared(target: &str, multiprocessors: u32, blocks: u64, least: u32) -> u32 {
    // Of a multiprocessor, and the most of a block.
    let (all, most) = if is_90(target) { (228 << 10, 226 << 10) } else { (100 << 10, 98 << 10) };
    let each = blocks.div_ceil(u64::from(multiprocessors.max(1)));
    // Just too much for one more; what the device adds for each block makes it more.
    let one_more = u64::from(all as u32) / (each + 1);
    if each * (u64::from(least) + (2 << 10)) > all as u64 {
        return least;
    }
    (one_more as u32).clamp(least, most.max(least))
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
        assert_eq!(shares_for(132, (1024, 16), 8), 1);
        assert_eq!(shares_for(132, (256, 64), 8), 1);
        assert_eq!(shares_for(132, (64, 64), 8), 2);
        assert_eq!(shares_for(132, (96, 32), 8), 4);
        assert_eq!(shares_for(132, (8, 128), 8), 16);
        assert_eq!(shares_for(132, (3, 8), 8), 8);
        assert_eq!(shares_for(132, (1, 1), 8), 1);
        // Two blocks a multiprocessor, where one does not saturate it.
        assert_eq!(shares_for(132, (64, 32), 12), 4);
        assert_eq!(shares_for(132, (256, 32), 12), 1);
        // An absurd context is many steps.
        assert_eq!(shares_for(132, (1, usize::MAX / 16), 8), MOST_SHARES);
    }

    #[test]
    fn an_emulated_device_has_the_blocks_of_the_real_one() {
        for (head_dim, cache) in [(64, Cache::Bf16), (128, Cache::I8), (64, Cache::F8), (64, Cache::F4)] {
            assert_eq!(variant("compute_90a", cache, head_dim, 2), variant("sm_90a", cache, head_dim, 2));
        }
        assert_eq!(even_shared("compute_90a", 132, 128, 48 << 10), even_shared("sm_90a", 132, 128, 48 << 10));
    }

    #[test]
    fn a_grid_lies_evenly_on_the_multiprocessors() {
        let fits = |all: u32, shared: u32| all / (shared + 1024);
        for (target, all) in [("sm_90a", 228 << 10), ("sm_120a", 100 << 10)] {
            for (blocks, least) in [(24, 48 << 10), (128, 48 << 10), (256, 48 << 10), (384, 48 << 10), (128, 96 << 10)]
            {
                let shared = even_shared(target, 132, blocks, least);
                let each = blocks.div_ceil(132) as u32;
                assert!(shared >= least && shared <= all - 1024, "{target}, {blocks}: {shared}");
                if each <= fits(all, least + 1024) {
                    // As many as it must hold, and the least there is, or no more.
                    let many = fits(all, shared + 1024);
                    assert!(
                        many >= each && (many == each || shared == least),
                        "{target}, {blocks} of {shared}: {many}"
                    );
                } else {
                    assert_eq!(shared, least, "several waves");
                }
            }
        }
        assert_eq!(even_shared("sm_90a", 132, 128, 48 << 10), 114 << 10);
    }
}
