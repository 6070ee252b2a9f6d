//! The two ends of a forward pass: embedding, rows that want logits, the choice of the next token.

use memtier::{Cuda, Fits, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpanMut};

use super::{Matrix, aligned, entries::Kernel, expect, narrow, product, require, vector::walk};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
};

/// What a pass needs before its layers: `sees[i] = positions[i] + 1`, the tokens that each token sees, and `arrived` zero, the counters
/// of [`DecodeWork`](super::DecodeWork).
///
/// # Errors
/// [`LaunchError::Shape`].
pub fn begin_pass<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    sees: &mut StableSpanMut<'_, impl SameElement<u32>, impl Fits<P>>,
    arrived: &mut StableSpanMut<'_, impl SameElement<u32>, impl Fits<P>>,
    positions: impl Input<u32, P>,
) -> Result<(), LaunchError> {
    let (sees, arrived) = (sees.output::<u32, P>(on), arrived.output::<u32, P>(on));
    let (what, positions) = ("begin_pass", positions.input());
    expect("begin_pass: sees", positions.units(), sees.units())?;
    let most = sees.units().max(arrived.units());
    if most == 0 {
        return Ok(());
    }
    let grid = Grid { blocks: (narrow(what, most.div_ceil(256))?, 1, 1), threads: 256, shared: 0 };
    let (tokens, counters) = (narrow(what, sees.units())?, narrow(what, arrived.units())?);
    let words = [sees.addr(), arrived.addr(), positions.addr(), tokens.word(), counters.word()];
    let kernels = kernels.clone();
    on.launch(&[sees.stream(), arrived.stream(), positions.stream()], move |queue| {
        // SAFETY: the kernel's own arguments; both outputs came from `&mut` and are as long as the counts.
        unsafe { launch(queue, kernels.function(Kernel::BeginPass), grid, &words) }
    })
}

/// `out[i] = factor * table[tokens[i]]`: `out` is tokens x the table's columns. A token behind its last row gets zeros.
///
/// # Errors
/// [`LaunchError::Shape`].
pub fn embed<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    table: Matrix<'_, P>,
    tokens: impl Input<u32, P>,
    factor: f32,
) -> Result<(), LaunchError> {
    let (out, tokens) = (out.output::<f32, P>(on), tokens.input());
    expect("embed: out", product("embed", &[tokens.units(), table.columns])?, out.units())?;
    let pieces = out.units() / 8;
    if pieces == 0 {
        return Ok(());
    }
    aligned("embed", 16, &[out.addr(), table.addr])?;
    let grid = walk(kernels, pieces);
    let (rows, columns) = (narrow("embed: rows", table.rows)?, narrow("embed: columns", table.columns)?);
    let words = [out.addr(), table.addr, tokens.addr(), rows.word(), columns.word(), factor.word(), pieces as u64];
    let kernels = kernels.clone();
    on.launch(&[out.stream(), table.stream, tokens.stream()], move |queue| {
        // SAFETY: the kernel's own arguments; it writes `pieces` eights of `out`, which came from `&mut`, and reads rows of the
        // table that are there. The caller's views (or the graph) keep them.
        unsafe { launch(queue, kernels.function(Kernel::Embed), grid, &words) }
    })
}

/// `out[i] = x[picks[i]]`, rows of `width` elements: a pick behind the last row gets zeros.
///
/// # Errors
/// [`LaunchError::Shape`], and [`LaunchError::Unsupported`] for a width that is no multiple of 4.
pub fn gather_rows<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    x: impl Input<f32, P>,
    picks: impl Input<u32, P>,
    width: usize,
) -> Result<(), LaunchError> {
    let (out, x, picks) = (out.output::<f32, P>(on), x.input(), picks.input());
    let what = "gather_rows";
    require(width > 0 && width.is_multiple_of(4), what, "the width must be a multiple of 4")?;
    expect("gather_rows: out", product(what, &[picks.units(), width])?, out.units())?;
    let rows = x.units() / width;
    expect("gather_rows: x", product(what, &[rows, width])?, x.units())?;
    let pieces = out.units() / 4;
    if pieces == 0 {
        return Ok(());
    }
    aligned(what, 16, &[out.addr(), x.addr()])?;
    let grid = walk(kernels, pieces);
    let (rows, width) = (narrow(what, rows)?, narrow(what, width)?);
    let words = [out.addr(), x.addr(), picks.addr(), rows.word(), width.word(), pieces as u64];
    let kernels = kernels.clone();
    on.launch(&[out.stream(), x.stream(), picks.stream()], move |queue| {
        // SAFETY: the kernel's own arguments; it writes `pieces` fours of `out`, which came from `&mut`, and reads rows of `x`
        // that are there. The caller's views (or the graph) keep them.
        unsafe { launch(queue, kernels.function(Kernel::Gather), grid, &words) }
    })
}

/// `x = cap * tanh(x / cap)`.
///
/// # Errors
/// [`LaunchError::Unsupported`] for a cap that is not above 0.
pub fn softcap<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    x: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    cap: f32,
) -> Result<(), LaunchError> {
    let x = x.output::<f32, P>(on);
    require(cap > 0.0, "softcap", "the cap must be above 0")?;
    let grid = walk(kernels, x.units());
    let words = [x.addr(), cap.word(), x.units() as u64];
    let kernels = kernels.clone();
    on.launch(&[x.stream()], move |queue| {
        // SAFETY: the kernel's own arguments; it reads and writes `x`, which came from `&mut`.
        unsafe { launch(queue, kernels.function(Kernel::Softcap), grid, &words) }
    })
}

/// Chooses a token for each row of `logits`, rows x `vocabulary`. `how` has temperature and top-p a row, `random` top-k (0 and
/// above 256: 256) and 64 random bits. Temperature 0 takes the largest logit, the first of equals; NaN is never larger.
///
/// # Errors
/// [`LaunchError::Shape`], and [`LaunchError::Unsupported`] for an empty vocabulary.
pub fn sample<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    sampled: &mut StableSpanMut<'_, impl SameElement<u32>, impl Fits<P>>,
    logits: impl Input<f32, P>,
    how: impl Input<f32, P>,
    random: impl Input<u32, P>,
    vocabulary: usize,
) -> Result<(), LaunchError> {
    let (sampled, logits) = (sampled.output::<u32, P>(on), logits.input());
    let (how, random) = (how.input(), random.input());
    let (what, rows) = ("sample", sampled.units());
    require(vocabulary > 0, what, "the vocabulary is empty")?;
    expect("sample: logits", product(what, &[rows, vocabulary])?, logits.units())?;
    expect("sample: how", product(what, &[rows, 2])?, how.units())?;
    expect("sample: random", product(what, &[rows, 3])?, random.units())?;
    if rows == 0 {
        return Ok(());
    }
    let grid = Grid { blocks: (narrow(what, rows)?, 1, 1), threads: 1024, shared: 0 };
    let words = [sampled.addr(), logits.addr(), how.addr(), random.addr(), narrow(what, vocabulary)?.word()];
    let streams = [sampled.stream(), logits.stream(), how.stream(), random.stream()];
    let kernels = kernels.clone();
    on.launch(&streams, move |queue| {
        // SAFETY: the kernel's own arguments; a block reads one row of each span, which hold as many as there are blocks, and
        // writes one element of `sampled`, which came from `&mut`. The caller's views (or the graph) keep them.
        unsafe { launch(queue, kernels.function(Kernel::Sample), grid, &words) }
    })
}
