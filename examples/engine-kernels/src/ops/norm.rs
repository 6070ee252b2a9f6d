//! Root-mean-square normalisation, alone and fused with what surrounds it in a layer.

use crate::error::{KernelError, expect, multiple, product};
use crate::isa::{Isa, multiversion};
use crate::quant::{PARALLEL_ELEMENTS, PIECE_ROWS, QuantRows, RECORD_BYTES, RECORD_COLS, checked_bytes, quantize};
use crate::threads::{Shares, Threads, spread};

/// A normalisation: `x / sqrt(mean of squares + epsilon) * weight`.
#[derive(Debug, Clone, Copy)]
pub struct Norm<'a> {
    /// One factor for each column; its length is the row's.
    pub weight: &'a [f32],
    /// Added to the mean of squares.
    pub epsilon: f32,
}

impl Norm<'_> {
    fn check(&self, what: &'static str, rows: usize, x: &[f32]) -> Result<(), KernelError> {
        multiple("columns of a normalised row", 1, self.weight.len())?;
        expect(what, product(what, rows, self.weight.len())?, x.len())
    }
}

/// `out = norm(x)` for `rows` rows.
///
/// # Errors
///
/// [`KernelError`] where a length is not `rows` x `norm.weight.len()`; `out` is then untouched.
pub fn rms_norm(
    threads: &Threads,
    isa: Isa,
    norm: Norm<'_>,
    x: &[f32],
    rows: usize,
    out: &mut [f32],
) -> Result<(), KernelError> {
    norm.check("rows to normalise", rows, x)?;
    expect("normalised rows", x.len(), out.len())?;
    let cols = norm.weight.len();
    let shares = Shares::new(out);
    spread(threads, rows, PIECE_ROWS, x.len() >= PARALLEL_ELEMENTS, &|range| {
        // SAFETY: ranges do not overlap, nor do the rows behind them.
        let out = unsafe { shares.part(range.start * cols, range.len() * cols) };
        out.copy_from_slice(&x[range.start * cols..range.end * cols]);
        normalize(isa, norm.weight, norm.epsilon, out);
    });
    Ok(())
}

/// `x = norm(x)` for `rows` rows; heads count as rows where each has a norm of its own.
///
/// # Errors
///
/// [`KernelError`] where the length is not `rows` x `norm.weight.len()`; `x` is then untouched.
pub fn rms_norm_in_place(
    threads: &Threads,
    isa: Isa,
    norm: Norm<'_>,
    x: &mut [f32],
    rows: usize,
) -> Result<(), KernelError> {
    norm.check("rows to normalise", rows, x)?;
    let cols = norm.weight.len();
    let worthwhile = x.len() >= PARALLEL_ELEMENTS;
    let shares = Shares::new(x);
    spread(threads, rows, PIECE_ROWS, worthwhile, &|range| {
        // SAFETY: ranges do not overlap, nor do the rows behind them.
        normalize(isa, norm.weight, norm.epsilon, unsafe { shares.part(range.start * cols, range.len() * cols) });
    });
    Ok(())
}

/// Quantises `norm(x)` into `dst`, [`QuantRows::bytes`] long: the input of a layer's first matmuls.
///
/// # Errors
///
/// [`KernelError`] where the columns are no multiple of 32 or a length is wrong; `dst` is then untouched.
pub fn rms_norm_quantize<'a>(
    threads: &Threads,
    isa: Isa,
    norm: Norm<'_>,
    x: &[f32],
    rows: usize,
    dst: &'a mut [u8],
) -> Result<QuantRows<'a>, KernelError> {
    norm.check("rows to normalise", rows, x)?;
    let cols = norm.weight.len();
    expect("bytes of quantised rows", checked_bytes(rows, cols)?, dst.len())?;
    let row_bytes = cols / RECORD_COLS * RECORD_BYTES;
    let shares = Shares::new(&mut *dst);
    spread(threads, rows, PIECE_ROWS, x.len() >= PARALLEL_ELEMENTS, &|range| {
        // SAFETY: ranges do not overlap, nor do the rows behind them.
        let dst = unsafe { shares.part(range.start * row_bytes, range.len() * row_bytes) };
        normalize_quantize(isa, norm.weight, norm.epsilon, &x[range.start * cols..range.end * cols], dst);
    });
    QuantRows::new(rows, cols, dst)
}

/// `residual += post(delta)` (or `+= delta` without a `post` norm), then `out = pre(residual)`, for `rows` rows: what
/// lies between two halves of a layer.
///
/// # Errors
///
/// [`KernelError`] where a length is not `rows` x columns; nothing is then touched.
#[allow(clippy::too_many_arguments, reason = "a fused kernel has the arguments of its parts")]
pub fn residual_norm(
    threads: &Threads,
    isa: Isa,
    residual: &mut [f32],
    delta: &[f32],
    post: Option<Norm<'_>>,
    pre: Norm<'_>,
    rows: usize,
    out: &mut [f32],
) -> Result<(), KernelError> {
    check_residual(residual, delta, post, pre, rows)?;
    expect("normalised rows", residual.len(), out.len())?;
    let cols = pre.weight.len();
    let worthwhile = delta.len() >= PARALLEL_ELEMENTS;
    let (residuals, outs) = (Shares::new(residual), Shares::new(out));
    spread(threads, rows, PIECE_ROWS, worthwhile, &|range| {
        let (start, len) = (range.start * cols, range.len() * cols);
        // SAFETY: ranges do not overlap, nor do the rows behind them.
        let (residual, out) = unsafe { (residuals.part(start, len), outs.part(start, len)) };
        add_delta(isa, residual, &delta[start..start + len], post, cols);
        out.copy_from_slice(residual);
        normalize(isa, pre.weight, pre.epsilon, out);
    });
    Ok(())
}

/// [`residual_norm`] with a quantised result in `dst`, [`QuantRows::bytes`] long.
///
/// # Errors
///
/// [`KernelError`] where the columns are no multiple of 32 or a length is wrong; nothing is then touched.
#[allow(clippy::too_many_arguments, reason = "a fused kernel has the arguments of its parts")]
pub fn residual_norm_quantize<'a>(
    threads: &Threads,
    isa: Isa,
    residual: &mut [f32],
    delta: &[f32],
    post: Option<Norm<'_>>,
    pre: Norm<'_>,
    rows: usize,
    dst: &'a mut [u8],
) -> Result<QuantRows<'a>, KernelError> {
    check_residual(residual, delta, post, pre, rows)?;
    let cols = pre.weight.len();
    expect("bytes of quantised rows", checked_bytes(rows, cols)?, dst.len())?;
    let row_bytes = cols / RECORD_COLS * RECORD_BYTES;
    let worthwhile = delta.len() >= PARALLEL_ELEMENTS;
    let (residuals, shares) = (Shares::new(residual), Shares::new(&mut *dst));
    spread(threads, rows, PIECE_ROWS, worthwhile, &|range| {
        let (start, len) = (range.start * cols, range.len() * cols);
        // SAFETY: ranges do not overlap, nor do the rows behind them.
        let residual = unsafe { residuals.part(start, len) };
        // SAFETY: as above.
        let dst = unsafe { shares.part(range.start * row_bytes, range.len() * row_bytes) };
        add_delta(isa, residual, &delta[start..start + len], post, cols);
        normalize_quantize(isa, pre.weight, pre.epsilon, residual, dst);
    });
    QuantRows::new(rows, cols, dst)
}

fn check_residual(
    residual: &[f32],
    delta: &[f32],
    post: Option<Norm<'_>>,
    pre: Norm<'_>,
    rows: usize,
) -> Result<(), KernelError> {
    pre.check("residual", rows, residual)?;
    expect("delta", residual.len(), delta.len())?;
    match post {
        Some(post) => post.check("delta", rows, delta),
        None => Ok(()),
    }
}

fn add_delta(isa: Isa, residual: &mut [f32], delta: &[f32], post: Option<Norm<'_>>, cols: usize) {
    for (residual, delta) in residual.chunks_exact_mut(cols).zip(delta.chunks_exact(cols)) {
        match post {
            Some(post) => add_normalized(isa, residual, delta, post.weight, post.epsilon),
            None => add_plain(isa, residual, delta),
        }
    }
}

/// The factor that makes a row's mean of squares 1. Squares are summed in 64 lanes, by column modulo 64, and the lanes
/// pairwise: one order for every level.
#[inline(always)]
fn inverse_rms(row: &[f32], epsilon: f32) -> f32 {
    let mut lanes = [[0f32; 16]; 4];
    let (chunks, rest) = row.as_chunks::<64>();
    for chunk in chunks {
        for (lanes, chunk) in lanes.iter_mut().zip(chunk.as_chunks::<16>().0) {
            for (lane, x) in lanes.iter_mut().zip(chunk) {
                *lane = x.mul_add(*x, *lane);
            }
        }
    }
    for (lane, x) in lanes.as_flattened_mut().iter_mut().zip(rest) {
        *lane = x.mul_add(*x, *lane);
    }
    let mut sums = [0f32; 16];
    for (lane, sum) in sums.iter_mut().enumerate() {
        *sum = (lanes[0][lane] + lanes[2][lane]) + (lanes[1][lane] + lanes[3][lane]);
    }
    let mut width = 16;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
    }
    1.0 / (sums[0] / row.len() as f32 + epsilon).sqrt()
}

multiversion! {
    fn normalize(weight: &[f32], epsilon: f32, rows: &mut [f32]) {
        for row in rows.chunks_exact_mut(weight.len()) {
            let factor = inverse_rms(row, epsilon);
            for (x, weight) in row.iter_mut().zip(weight) {
                *x = *x * factor * weight;
            }
        }
    }
}

/// Columns that are normalised, then quantised, before the next ones.
const STRIP: usize = 8 * RECORD_COLS;

fn normalize_quantize(isa: Isa, weight: &[f32], epsilon: f32, rows: &[f32], dst: &mut [u8]) {
    let dst = dst.chunks_exact_mut(weight.len() / RECORD_COLS * RECORD_BYTES);
    for (row, dst) in rows.chunks_exact(weight.len()).zip(dst) {
        let factor = row_factor(isa, row, epsilon);
        let strips = row.chunks(STRIP).zip(weight.chunks(STRIP));
        for ((row, weight), dst) in strips.zip(dst.chunks_mut(STRIP / RECORD_COLS * RECORD_BYTES)) {
            let mut normalized = [0f32; STRIP];
            let normalized = &mut normalized[..row.len()];
            apply(isa, row, factor, weight, normalized);
            quantize(isa, normalized, dst);
        }
    }
}

multiversion! {
    fn row_factor(row: &[f32], epsilon: f32) -> f32 {
        inverse_rms(row, epsilon)
    }
}

multiversion! {
    fn apply(row: &[f32], factor: f32, weight: &[f32], out: &mut [f32]) {
        for ((out, x), weight) in out.iter_mut().zip(row).zip(weight) {
            *out = *x * factor * weight;
        }
    }
}

multiversion! {
    fn add_normalized(residual: &mut [f32], delta: &[f32], weight: &[f32], epsilon: f32) {
        let factor = inverse_rms(delta, epsilon);
        for ((residual, delta), weight) in residual.iter_mut().zip(delta).zip(weight) {
            *residual += *delta * factor * weight;
        }
    }
}

multiversion! {
    fn add_plain(residual: &mut [f32], delta: &[f32]) {
        for (residual, delta) in residual.iter_mut().zip(delta) {
            *residual += delta;
        }
    }
}
