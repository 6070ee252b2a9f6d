//! Paged prefill attention.

use memtier::{
    BlockId, Cuda, Fits, Input, Is, LaunchError, Place, PoolKind, Recorder, SameElement, Slab, StableSpanMut, bf16,
};

use super::{KvElement, PagedKv, aligned, entries::Kernel, expect, narrow, paged::whole_pages, product, require};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
};

/// Tokens of a pass that one block takes.
const QUERIES: usize = 64;
/// Shared memory of a block: two tiles of keys and of values, 8 KiB each.
const SHARED: u32 = 32 << 10;

/// How a layer attends in prefill.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PrefillShape {
    /// Query heads, a multiple of the key/value heads.
    pub heads: usize,
    /// What products of queries and keys are multiplied with.
    pub scale: f32,
    /// Tokens that a query sees, its own included; `None`: all.
    pub window: Option<usize>,
    /// The cap of scores.
    pub softcap: Option<f32>,
}

fn variant(f16: bool, head_dim: usize) -> Result<Kernel, LaunchError> {
    match (head_dim, f16) {
        (64, false) => Ok(Kernel::PrefillD64),
        (128, false) => Ok(Kernel::PrefillD128),
        (256, false) => Ok(Kernel::PrefillD256),
        (64, true) => Ok(Kernel::PrefillF16D64),
        (128, true) => Ok(Kernel::PrefillF16D128),
        (256, true) => Ok(Kernel::PrefillF16D256),
        _ => {
            let why = "heads of 64, 128 and 256 elements are served";
            Err(LaunchError::Unsupported { what: "paged_prefill: head_dim", why })
        }
    }
}

/// Causal attention of tokens to the pages of their own sequences: `q` and `out` are tokens x heads x head_dim, `rows` and
/// `positions` say whose each token is and where. The keys and values of the pass itself are in the pages already. Tokens of one
/// sequence that stand together share the reading of its keys. A token whose row is not in the table, and one that sees holes
/// only, gets zeros.
///
/// # Errors
/// [`LaunchError::Shape`] and [`LaunchError::Unsupported`] name what does not fit.
#[allow(clippy::too_many_arguments, reason = "a layer's pages, its table, and three rows of inputs")]
pub fn paged_prefill<K: PoolKind<Element: KvElement>, P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    q: impl Input<K::Element, P>,
    slab: &Slab<'_, K, impl Fits<P>>,
    ids: impl Input<BlockId<K>, P>,
    [rows, positions]: [impl Input<u32, P>; 2],
    (kv, shape): (PagedKv, PrefillShape),
) -> Result<(), LaunchError> {
    let (out, slab, ids, q) = (out.output::<bf16, P>(on), slab.raw(), ids.input(), q.input());
    let (rows, positions) = (rows.input(), positions.input());
    let PagedKv { layer_base, kv_heads, head_dim } = kv;
    let PrefillShape { heads, scale, window, softcap } = shape;
    let (what, tokens) = ("paged_prefill", rows.units());
    let table = kv.check(what, (slab.block_units(), slab.block_tokens(), slab.pool()), ids.meta())?;
    require(heads > 0 && heads.is_multiple_of(kv_heads), what, "query heads must be a multiple of key/value heads")?;
    require(heads <= 65_535, what, "a launch takes at most 65535 heads")?;
    require(window != Some(0), what, "a window of no tokens sees nothing: use `None` for no window")?;
    let kernel = variant(<K::Element as KvElement>::F16, head_dim)?;
    whole_pages(what, slab.block_tokens())?;
    expect("paged_prefill: positions", tokens, positions.units())?;
    expect("paged_prefill: q", product(what, &[tokens, heads, head_dim])?, q.units())?;
    expect("paged_prefill: out", q.units(), out.units())?;
    if tokens == 0 {
        return Ok(());
    }
    aligned(what, 8, &[out.addr(), q.addr()])?;
    let blocks = (narrow(what, tokens.div_ceil(QUERIES))?, narrow(what, heads)?, 1);
    let grid = Grid { blocks, threads: 128, shared: SHARED };
    let log2e = std::f32::consts::LOG2_E;
    let words = [
        out.addr(),
        q.addr(),
        slab.base(),
        ids.addr(),
        rows.addr(),
        positions.addr(),
        slab.pool(),
        slab.block_units() as u64,
        layer_base as u64,
        narrow(what, slab.block_tokens())?.word(),
        table.0.word(),
        table.1.word(),
        narrow(what, tokens)?.word(),
        narrow(what, kv_heads)?.word(),
        narrow(what, heads / kv_heads)?.word(),
        narrow(what, window.unwrap_or(0))?.word(),
        (scale * log2e).word(),
        (softcap.unwrap_or(0.0) * log2e).word(),
    ];
    let streams = [out.stream(), q.stream(), slab.stream(), ids.stream(), rows.stream(), positions.stream()];
    let kernels = kernels.clone();
    on.launch(&streams, move |queue| {
        // SAFETY: the kernel's own arguments. It writes `out`, which came from `&mut`, and reads what the other spans hold; of
        // the slab it reads blocks that the table names: the ids of this pool's tickets, pinned by their rows and so
        // committed, or holes. Positions are cut to the table's columns, rows to its rows. The caller's views (or the
        // graph) keep all of it.
        unsafe { launch(queue, kernels.function(kernel), grid, &words) }
    })
}
