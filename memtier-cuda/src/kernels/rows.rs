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

/// Chooses a token for each row of `logits`, picks x `vocabulary`. `at` has `[picks, rows, positions]`: the token of the pass that each row is
/// of, and of each token of the pass its sequence and its position there. `how` has temperature and top-p of each sequence, `seeds` top-k (0 and
/// above 256: 256) and the seed, its low word first.
///
/// Temperature 0 takes the largest logit, the first of equals; NaN is never larger. Another divides the logits; then of the largest top-k the largest
/// that make up the share top-p are candidates, and the fraction that [`philox`] gives for the seed and the new token's
/// position (one behind the token of the row) chooses. So a token depends on its logits, its sequence's seed and its position, and on nothing beside
/// it in the pass. Sequences and tokens that are not there take the largest logit.
///
/// # Errors
/// [`LaunchError::Shape`], and [`LaunchError::Unsupported`] for an empty vocabulary.
pub fn sample<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    sampled: &mut StableSpanMut<'_, impl SameElement<u32>, impl Fits<P>>,
    logits: impl Input<f32, P>,
    (how, seeds): (impl Input<f32, P>, impl Input<u32, P>),
    at: [impl Input<u32, P>; 3],
    vocabulary: usize,
) -> Result<(), LaunchError> {
    let (sampled, logits) = (sampled.output::<u32, P>(on), logits.input());
    let (how, seeds, [picks, rows, positions]) = (how.input(), seeds.input(), at.map(Input::input));
    let (what, count, sequences) = ("sample", sampled.units(), how.units() / 2);
    require(vocabulary > 0, what, "the vocabulary is empty")?;
    expect("sample: logits", product(what, &[count, vocabulary])?, logits.units())?;
    expect("sample: how", product(what, &[sequences, 2])?, how.units())?;
    expect("sample: seeds", product(what, &[sequences, 3])?, seeds.units())?;
    expect("sample: picks", count, picks.units())?;
    expect("sample: positions", rows.units(), positions.units())?;
    if count == 0 {
        return Ok(());
    }
    let grid = Grid { blocks: (narrow(what, count)?, 1, 1), threads: 1024, shared: 0 };
    let spans = [sampled.addr(), logits.addr(), how.addr(), seeds.addr(), picks.addr(), rows.addr(), positions.addr()];
    let numbers = [narrow(what, vocabulary)?, narrow(what, rows.units())?, narrow(what, sequences)?];
    let mut words = [0; 10];
    words[..7].copy_from_slice(&spans);
    words[7..].copy_from_slice(&numbers.map(Arg::word));
    let streams = [
        sampled.stream(),
        logits.stream(),
        how.stream(),
        seeds.stream(),
        picks.stream(),
        rows.stream(),
        positions.stream(),
    ];
    let kernels = kernels.clone();
    on.launch(&streams, move |queue| {
        // SAFETY: the kernel's own arguments; a block reads one row of logits and one pick, of which there are as many as blocks, what that
        // pick names below the two counts, and writes one element of `sampled`, which came from `&mut`. The caller's views (or the
        // graph) keep them.
        unsafe { launch(queue, kernels.function(Kernel::Sample), grid, &words) }
    })
}

/// Philox4x32-10 (Salmon et al., 2011), random numbers that are a function: `out` has four words for each six of `inputs`, a counter of four and a
/// key of two. [`sample`] takes the first word of the counter (position, 0, 0, 0) under the seed, and of it the upper 24 bits.
///
/// # Errors
/// [`LaunchError::Shape`].
pub fn philox<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<u32>, impl Fits<P>>,
    inputs: impl Input<u32, P>,
) -> Result<(), LaunchError> {
    let (out, inputs) = (out.output::<u32, P>(on), inputs.input());
    let count = inputs.units() / 6;
    expect("philox: inputs", product("philox", &[count, 6])?, inputs.units())?;
    expect("philox: out", product("philox", &[count, 4])?, out.units())?;
    if count == 0 {
        return Ok(());
    }
    let grid = walk(kernels, count);
    let words = [out.addr(), inputs.addr(), count as u64];
    let kernels = kernels.clone();
    on.launch(&[out.stream(), inputs.stream()], move |queue| {
        // SAFETY: the kernel's own arguments; it reads six words and writes four, of `out` which came from `&mut`, for each of `count`. The
        // caller's views (or the graph) keep them.
        unsafe { launch(queue, kernels.function(Kernel::Philox), grid, &words) }
    })
}
