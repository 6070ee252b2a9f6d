//! Rotary positions, with the write of keys and values into their pages.

use memtier::{
    BlockId, Cuda, Element, Fits, Input, Is, LaunchError, Place, PoolKind, Recorder, SameElement, SlabMut, StableSpan,
    StableSpanMut, bf16,
};

use super::{
    KvElement, PagedKv, aligned,
    entries::Kernel,
    expect, narrow,
    paged::{Cache, join},
    product, require,
};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
};

/// Which elements of a head form a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RopeStyle {
    /// Element `i` and element `i + pairs`.
    Halves,
    /// Neighbours.
    Interleaved,
}

/// The heads of a layer, and how they rotate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RopeShape {
    /// Query heads.
    pub heads: usize,
    /// Pairs of a head that rotate; elements behind them do not.
    pub pairs: usize,
    /// Which elements form a pair.
    pub style: RopeStyle,
}

/// Norms of queries and keys by head, before they rotate.
#[derive(Clone, Copy)]
pub struct HeadNorms<'a, P, W: Element = bf16> {
    /// The weight of query heads: one head's elements.
    pub q: StableSpan<'a, W, P>,
    /// The weight of key heads.
    pub k: StableSpan<'a, W, P>,
    /// What is added to the mean square.
    pub epsilon: f32,
}

/// The cosines and sines of a step's tokens, for all layers of one kind: `angles` is tokens x pairs x 2, `frequencies` one
/// for each pair.
///
/// # Errors
/// [`LaunchError::Shape`].
pub fn rope_angles<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    angles: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    positions: impl Input<u32, P>,
    frequencies: impl Input<f32, P>,
) -> Result<(), LaunchError> {
    let (angles, positions, frequencies) = (angles.output::<f32, P>(on), positions.input(), frequencies.input());
    let total = product("rope_angles", &[positions.units(), frequencies.units()])?;
    expect("rope_angles: angles", product("rope_angles", &[total, 2])?, angles.units())?;
    if total == 0 {
        return Ok(());
    }
    aligned("rope_angles", 8, &[angles.addr()])?;
    let blocks = narrow("rope_angles", total.div_ceil(128))?;
    let grid = Grid { blocks: (blocks, 1, 1), threads: 128, shared: 0 };
    let pairs = narrow("rope_angles: frequencies", frequencies.units())?;
    let words = [angles.addr(), positions.addr(), frequencies.addr(), pairs.word(), total as u64];
    let kernels = kernels.clone();
    on.launch(&[angles.stream(), positions.stream(), frequencies.stream()], move |queue| {
        // SAFETY: the kernel's own arguments; it writes `total` pairs and reads what the spans hold. `angles` came from
        // `&mut`. The caller's views (or the graph) keep them.
        unsafe { launch(queue, kernels.function(Kernel::RopeAngles), grid, &words) }
    })
}

/// The same for `pairs` frequencies `scale * base^(-pair / pairs)`, in f64; each divided by its one of `factors` where there are any, as
/// Llama 3.1 and later stretch them.
///
/// # Errors
/// [`LaunchError::Shape`] (of factors that are not `pairs`, too), and [`LaunchError::Unsupported`] for a base or scale that is not above 0.
pub fn rope_angles_of<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    angles: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    positions: impl Input<u32, P>,
    (pairs, base, scale): (usize, f32, f32),
    factors: Option<StableSpan<'_, f32, P>>,
) -> Result<(), LaunchError> {
    let (what, angles, positions) = ("rope_angles_of", angles.output::<f32, P>(on), positions.input());
    require(base > 0.0 && scale > 0.0, what, "base and scale must be above 0")?;
    let factors = factors.map(Input::<f32, P>::input);
    if let Some(factors) = &factors {
        expect("rope_angles_of: factors", pairs, factors.units())?;
    }
    let total = product(what, &[positions.units(), pairs])?;
    expect("rope_angles_of: angles", product(what, &[total, 2])?, angles.units())?;
    if total == 0 {
        return Ok(());
    }
    aligned(what, 8, &[angles.addr()])?;
    let grid = Grid { blocks: (narrow(what, total.div_ceil(128))?, 1, 1), threads: 128, shared: 0 };
    let (base, scale) = (f64::from(base).log2().to_bits(), f64::from(scale).log2().to_bits());
    let (factors, of_factors) = factors.map_or((0, positions.stream()), |factors| (factors.addr(), factors.stream()));
    let words = [angles.addr(), positions.addr(), factors, base, scale, narrow(what, pairs)?.word(), total as u64];
    let kernels = kernels.clone();
    on.launch(&[angles.stream(), positions.stream(), of_factors], move |queue| {
        // SAFETY: as in `rope_angles`; the factors are null, or one for each pair.
        unsafe { launch(queue, kernels.function(Kernel::RopeAnglesOf), grid, &words) }
    })
}

/// Rotates queries and keys, and writes keys and values into their pages, which hold bf16, f16, e4m3, or what [`PackedKv`](super::PackedKv) names; rotated queries are what
/// attends to such pages ([`KvElement::Query`]). In e4m3, each key and each value has a scale of its own: its largest element is
/// the largest e4m3.
///
/// `qkv` has a row a token: query heads, key heads, value heads. Rotated queries go to `q`, tokens x heads x head_dim. Keys
/// and values of token `i` go to position `positions[i]` of row `rows[i]` of the page table; a token whose row or position is
/// not in the table, or whose page is a hole, writes no keys and values (padding of a batch, say).
///
/// # Errors
/// [`LaunchError::Shape`] and [`LaunchError::Unsupported`] name what does not fit.
#[allow(clippy::too_many_arguments, reason = "a layer's pages, its table, and three rows of inputs")]
pub fn rope_kv_write<K: PoolKind<Element: KvElement>, P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    q: &mut StableSpanMut<'_, impl SameElement<<K::Element as KvElement>::Query>, impl Fits<P>>,
    slab: &mut SlabMut<'_, K, impl Fits<P>>,
    ids: impl Input<BlockId<K>, P>,
    qkv: impl Input<bf16, P>,
    angles: impl Input<f32, P>,
    [rows, positions]: [impl Input<u32, P>; 2],
    norms: Option<HeadNorms<'_, P, <K::Element as KvElement>::Norm>>,
    (kv, shape): (PagedKv, RopeShape),
) -> Result<(), LaunchError> {
    let (q, slab, ids) = (q.output::<<K::Element as KvElement>::Query, P>(on), slab.raw(), ids.input());
    let (qkv, angles, rows, positions) = (qkv.input(), angles.input(), rows.input(), positions.input());
    let PagedKv { kv_heads, head_dim, .. } = kv;
    let RopeShape { heads, pairs, style } = shape;
    let (what, tokens) = ("rope_kv_write", rows.units());
    let pages = (slab.block_units(), slab.block_tokens(), slab.pool());
    let pages = kv.pages::<K::Element>(what, pages, ids.meta())?;
    require(head_dim <= 256, what, "a head can have at most 256 elements")?;
    require(pairs.is_multiple_of(2) && pairs <= head_dim / 2, what, "pairs must be even, and at most half a head")?;
    let all = heads.saturating_add(2 * kv_heads);
    let units = product(what, &[tokens, all])?;
    expect("rope_kv_write: positions", tokens, positions.units())?;
    expect("rope_kv_write: q", product(what, &[tokens, heads, head_dim])?, q.units())?;
    expect("rope_kv_write: qkv", product(what, &[units, head_dim])?, qkv.units())?;
    expect("rope_kv_write: angles", product(what, &[tokens, pairs, 2])?, angles.units())?;
    let (mut flags, mut epsilon, mut norm_addrs) = (u32::from(style == RopeStyle::Interleaved), 0.0f32, [0; 2]);
    let mut norm_streams = [q.stream(); 2];
    if let Some(norms) = norms {
        expect("rope_kv_write: q norm", head_dim, norms.q.len())?;
        expect("rope_kv_write: k norm", head_dim, norms.k.len())?;
        let (q, k) = (norms.q, norms.k);
        let q = Input::<<K::Element as KvElement>::Norm, P>::input(q);
        let k = Input::<<K::Element as KvElement>::Norm, P>::input(k);
        (flags, epsilon, norm_addrs) = (flags | 2, norms.epsilon, [q.addr(), k.addr()]);
        norm_streams = [q.stream(), k.stream()];
    }
    if units == 0 {
        return Ok(());
    }
    aligned(what, 8, &[q.addr(), qkv.addr(), angles.addr(), norm_addrs[0], norm_addrs[1]])?;
    let grid = Grid { blocks: (narrow(what, units.div_ceil(4))?, 1, 1), threads: 128, shared: 16 * head_dim as u32 };
    let spans = [
        q.addr(),
        slab.base(),
        qkv.addr(),
        angles.addr(),
        ids.addr(),
        rows.addr(),
        positions.addr(),
        norm_addrs[0],
        norm_addrs[1],
    ];
    let heads = [
        narrow(what, heads)?.word(),
        narrow(what, kv_heads)?.word(),
        narrow(what, head_dim)?.word(),
        narrow(what, pairs)?.word(),
        flags.word(),
        epsilon.word(),
        units as u64,
    ];
    let words: [u64; 22] = join(join::<9, 6, 15>(spans, pages), heads);
    let kernel = match kv.cache::<K::Element>(what)? {
        Cache::Bf16 => Kernel::RopeKvWriteBf16,
        Cache::F16 => Kernel::RopeKvWriteF16,
        Cache::F8 => Kernel::RopeKvWriteF8,
        Cache::I8 => Kernel::RopeKvWriteI8,
        Cache::F4 => Kernel::RopeKvWriteF4,
    };
    let [of_q_norm, of_k_norm] = norm_streams;
    let streams = [
        q.stream(),
        slab.stream(),
        ids.stream(),
        qkv.stream(),
        angles.stream(),
        rows.stream(),
        positions.stream(),
        of_q_norm,
        of_k_norm,
    ];
    let kernels = kernels.clone();
    on.launch(&streams, move |queue| {
        // SAFETY: the kernel's own arguments. It reads what the spans hold and writes `q`, which came from `&mut`; and the
        // slab, borrowed mutably, at blocks that the table names: the ids of this pool's tickets, pinned by their rows and
        // so committed, or holes. The layer's part of a block was checked to be inside of it. The caller's views (or the
        // graph) keep all of it.
        unsafe { launch(queue, kernels.function(kernel), grid, &words) }
    })
}
