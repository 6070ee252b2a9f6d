//! Paged prefill attention.

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
    launch::{Arg, Grid, launch},
    module::is_90,
};

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

/// How the kernel for a cache and a head size is launched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Variant {
    kernel: Kernel,
    threads: u32,
    /// Tokens of a pass that one block takes.
    queries: usize,
    /// Bytes of shared memory of a block.
    shared: u32,
}

fn variant(target: &str, cache: Cache, head_dim: usize) -> Result<Variant, LaunchError> {
    let kernel = match (cache, head_dim) {
        (Cache::Bf16, 64) => Kernel::PrefillD64,
        (Cache::Bf16, 128) => Kernel::PrefillD128,
        (Cache::Bf16, 256) => Kernel::PrefillD256,
        (Cache::F16, 64) => Kernel::PrefillF16D64,
        (Cache::F16, 128) => Kernel::PrefillF16D128,
        (Cache::F16, 256) => Kernel::PrefillF16D256,
        (Cache::F8, 64) => Kernel::PrefillF8D64,
        (Cache::F8, 128) => Kernel::PrefillF8D128,
        (Cache::F8, 256) => Kernel::PrefillF8D256,
        (Cache::I8, 64) => Kernel::PrefillI8D64,
        (Cache::I8, 128) => Kernel::PrefillI8D128,
        (Cache::I8, 256) => Kernel::PrefillI8D256,
        (Cache::F4, 64) => Kernel::PrefillF4D64,
        (Cache::F4, 128) => Kernel::PrefillF4D128,
        (Cache::F4, 256) => Kernel::PrefillF4D256,
        _ => {
            let why = "heads of 64, 128 and 256 elements are served";
            return Err(LaunchError::Unsupported { what: "paged_prefill: head_dim", why });
        }
    };
    // As `Choice` in `prefill_tile.cuh` has them.
    let (warps, parts, keys, held) = match (is_90(target), head_dim, cache.is_narrow()) {
        (true, 64, true) => (4, 2, 64, false),
        (true, 64, false) => (4, 2, 128, false),
        (true, 128, _) => (4, 2, 64, false),
        (true, _, true) => (8, 1, 32, false),
        (true, _, false) => (8, 1, 64, false),
        (_, 64, true) => (4, 2, 32, true),
        (_, 64, false) => (4, 2, 64, true),
        (_, 128, _) => (4, 1, 32, true),
        _ => (8, 1, 16, false),
    };
    let queries = warps * parts * 16;
    // Two tiles of keys and of values, and the queries where registers do not hold them. Of fewer bits two tiles as they come, one that is
    // widened, and the scales of two.
    let (row, narrow) = (head_dim * 2, |bits: usize| 2 * keys * head_dim * 2 + 4 * keys * head_dim * bits / 8);
    let tiles = match cache {
        Cache::Bf16 | Cache::F16 => 4 * keys * row,
        Cache::F8 => narrow(8) + 4 * keys * 4,
        Cache::I8 => narrow(8) + 4 * keys * head_dim / 16,
        Cache::F4 => narrow(4) + 4 * keys * head_dim / 16 + 4 * keys * 4,
    };
    let shared = (tiles + if held { 0 } else { queries * row }) as u32;
    Ok(Variant { kernel, threads: 32 * warps as u32, queries, shared })
}

/// Causal attention of tokens to the pages of their own sequences: `q` and `out` are tokens x heads x head_dim, `rows` and
/// `positions` say whose each token is and where. The keys and values of the pass itself are in the pages already. Tokens of one
/// sequence that stand together share the reading of its keys. A token whose row is not in the table, and one that sees holes
/// only, gets zeros. Pages of fewer bits
/// are widened to f16 on the way, times the scales of groups, and keys times those of whole keys; scales of whole values are multiplied
/// to weights, in f32.
///
/// # Errors
/// [`LaunchError::Shape`] and [`LaunchError::Unsupported`] name what does not fit: `q` begins at a multiple of 16 bytes, `out` of 8.
#[allow(clippy::too_many_arguments, reason = "a layer's pages, its table, and three rows of inputs")]
pub fn paged_prefill<K: PoolKind<Element: KvElement>, P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    q: impl Input<<K::Element as KvElement>::Query, P>,
    slab: &Slab<'_, K, impl Fits<P>>,
    ids: impl Input<BlockId<K>, P>,
    [rows, positions]: [impl Input<u32, P>; 2],
    (kv, shape): (PagedKv, PrefillShape),
) -> Result<(), LaunchError> {
    let (out, slab, ids, q) = (out.output::<bf16, P>(on), slab.raw(), ids.input(), q.input());
    let (rows, positions) = (rows.input(), positions.input());
    let PagedKv { head_dim, .. } = kv;
    let PrefillShape { heads, scale, window, softcap } = shape;
    let (what, tokens) = ("paged_prefill", rows.units());
    let pages = (slab.block_units(), slab.block_tokens(), slab.pool());
    let attending = Attending { heads, scale, window, softcap };
    let layer = kv.attention::<K::Element>(what, pages, ids.meta(), attending)?;
    require(scale > 0.0, what, "the scale of scores must be above 0")?;
    let Variant { kernel, threads, queries, shared } =
        variant(kernels.target(), kv.cache::<K::Element>(what)?, head_dim)?;
    expect("paged_prefill: positions", tokens, positions.units())?;
    expect("paged_prefill: q", product(what, &[tokens, heads, head_dim])?, q.units())?;
    expect("paged_prefill: out", q.units(), out.units())?;
    if tokens == 0 {
        return Ok(());
    }
    // Where registers do not hold them, queries are copied by 16 bytes.
    aligned(what, 16, &[q.addr()])?;
    aligned(what, 8, &[out.addr()])?;
    let blocks = (narrow(what, heads)?, narrow(what, tokens.div_ceil(queries))?, 1);
    require(blocks.1 <= 65_535, what, "a launch takes at most four million tokens")?;
    let grid = Grid { blocks, threads, shared };
    let spans = [out.addr(), q.addr(), slab.base(), ids.addr(), rows.addr(), positions.addr()];
    let words: [u64; 18] = join(join::<6, 11, 17>(spans, layer), [narrow(what, tokens)?.word()]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fit_into_the_shared_memory_of_their_device() {
        // What the kernel declares itself is less than 2 KiB; the rest of a block's most is dynamic.
        for (target, most) in [("sm_90a", 227 << 10), ("sm_120a", 99 << 10), ("compute_120f", 99 << 10)] {
            for head_dim in [64, 128, 256] {
                for cache in [Cache::Bf16, Cache::F16, Cache::F8, Cache::I8, Cache::F4] {
                    let it = variant(target, cache, head_dim).unwrap();
                    assert!(it.shared + (2 << 10) <= most, "{head_dim} on {target}: {it:?}");
                }
            }
        }
        // The PTX for an emulated device is made of the same source as the machine code.
        for (head_dim, cache) in [(64, Cache::F16), (128, Cache::I8), (256, Cache::F8)] {
            assert_eq!(variant("compute_90a", cache, head_dim), variant("sm_90a", cache, head_dim));
        }
        assert!(variant("sm_90a", Cache::F16, 96).is_err());
        assert!(variant("sm_90a", Cache::F8, 96).is_err());
    }
}
