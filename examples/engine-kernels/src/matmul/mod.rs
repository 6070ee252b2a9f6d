//! Matrix products of packed weights and activation rows.
//!
//! `out[m][r] = sum over c of weights[r][c] * x[m][c]`, row-major. See [`tile`] for the exact arithmetic: one output's
//! bits depend on its weight row and its activation row alone, never on the batch, the threads or the level.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod drive;
mod portable;
mod spec;
mod tile;

use crate::error::{KernelError, expect, product};
use crate::isa::Isa;
use crate::ops::Activation;
use crate::packed::Packed;
use crate::quant::{QuantRows, checked_bytes};
use crate::threads::{Shares, Threads};

use drive::{Job, Output, Rows};

/// The activations of a matmul.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// Quantised rows, for every quantised weight format.
    Quant(QuantRows<'a>),
    /// `rows` x `cols` f32, row-major, for float weight formats.
    Float {
        /// The activations.
        x: &'a [f32],
        /// Activation rows.
        rows: usize,
        /// Columns of a row.
        cols: usize,
    },
}

impl Input<'_> {
    /// Activation rows.
    pub fn rows(&self) -> usize {
        match self {
            Input::Quant(rows) => rows.rows(),
            Input::Float { rows, .. } => *rows,
        }
    }

    /// Columns of a row.
    pub fn cols(&self) -> usize {
        match self {
            Input::Quant(rows) => rows.cols(),
            Input::Float { cols, .. } => *cols,
        }
    }

    fn check(&self) -> Result<(), KernelError> {
        match self {
            Input::Quant(_) => Ok(()),
            Input::Float { x, rows, cols } => expect("activations", product("activations", *rows, *cols)?, x.len()),
        }
    }

    fn fits(&self, weights: &Packed<'_>) -> Result<(), KernelError> {
        expect("columns of the activations", weights.cols(), self.cols())?;
        if matches!(self, Input::Float { .. }) != weights.format().is_float() {
            return Err(KernelError::Input { format: weights.format().name() });
        }
        Ok(())
    }

    fn raw(&self) -> Rows<'_> {
        match self {
            Input::Quant(rows) => Rows { bytes: rows.as_bytes(), stride: rows.row_bytes(), count: rows.rows() },
            Input::Float { x, rows, cols } => Rows { bytes: drive::bytes_of(x), stride: cols * 4, count: *rows },
        }
    }
}

impl<'a> From<QuantRows<'a>> for Input<'a> {
    fn from(rows: QuantRows<'a>) -> Self {
        Input::Quant(rows)
    }
}

/// One of several matrices that share their activations.
#[derive(Debug)]
pub struct Projection<'a> {
    /// The matrix.
    pub weights: Packed<'a>,
    /// `m` x `weights.rows()` f32, row-major.
    pub out: &'a mut [f32],
    /// Add to what `out` holds (a residual) instead of overwriting it.
    pub add: bool,
}

/// `out = weights x`: `out` is `m` x `weights.rows()`.
///
/// # Errors
///
/// [`KernelError`] where shapes disagree or the weights want the other kind of activations; `out` is then untouched.
pub fn matmul(
    threads: &Threads,
    isa: Isa,
    weights: &Packed<'_>,
    x: Input<'_>,
    out: &mut [f32],
) -> Result<(), KernelError> {
    matmul_many(threads, isa, x, &mut [Projection { weights: *weights, out, add: false }])
}

/// Several matrices times the same activations in one parallel region (query, key and value, for instance).
///
/// # Errors
///
/// As [`matmul`]; no output is touched where one projection does not fit.
pub fn matmul_many(
    threads: &Threads,
    isa: Isa,
    x: Input<'_>,
    projections: &mut [Projection<'_>],
) -> Result<(), KernelError> {
    x.check()?;
    for projection in projections.iter() {
        x.fits(&projection.weights)?;
        let elements = product("output", x.rows(), projection.weights.rows())?;
        expect("output", elements, projection.out.len())?;
    }
    // A region takes a handful of jobs, which live on the stack.
    for projections in projections.chunks_mut(drive::MAX_JOBS) {
        let mut jobs: [Option<Job<'_>>; drive::MAX_JOBS] = [const { None }; drive::MAX_JOBS];
        for (job, projection) in jobs.iter_mut().zip(projections) {
            let out = Shares::new(&mut *projection.out);
            let out = if projection.add { Output::Add(out) } else { Output::Set(out) };
            *job = Some(Job::new(isa, projection.weights, None, out));
        }
        drive::run(threads, isa, x.raw(), &jobs);
    }
    Ok(())
}

/// `out = act(gate x) * (up x)`, elementwise: the first half of a gated feed-forward, `out` is `m` x `gate.rows()`.
///
/// # Errors
///
/// As [`matmul`]; also where the two matrices differ in shape.
pub fn matmul_gated(
    threads: &Threads,
    isa: Isa,
    gate: &Packed<'_>,
    up: &Packed<'_>,
    activation: Activation,
    x: Input<'_>,
    out: &mut [f32],
) -> Result<(), KernelError> {
    check_gated(gate, up, x)?;
    expect("output", product("output", x.rows(), gate.rows())?, out.len())?;
    let job = Job::new(isa, *gate, Some((*up, activation)), Output::Set(Shares::new(out)));
    drive::run(threads, isa, x.raw(), &[Some(job)]);
    Ok(())
}

/// [`matmul_gated`] with a quantised result in `dst`, [`QuantRows::bytes`] long: the second half of a gated feed-forward
/// takes it as it is, and the products never go through memory.
///
/// # Errors
///
/// As [`matmul_gated`]; also where the matrices' rows are no multiple of 32.
#[allow(clippy::too_many_arguments, reason = "a fused kernel has the arguments of its parts")]
pub fn matmul_gated_quantize<'a>(
    threads: &Threads,
    isa: Isa,
    gate: &Packed<'_>,
    up: &Packed<'_>,
    activation: Activation,
    x: Input<'_>,
    dst: &'a mut [u8],
) -> Result<QuantRows<'a>, KernelError> {
    check_gated(gate, up, x)?;
    expect("bytes of quantised rows", checked_bytes(x.rows(), gate.rows())?, dst.len())?;
    let job = Job::new(isa, *gate, Some((*up, activation)), Output::Quantize(Shares::new(&mut *dst)));
    drive::run(threads, isa, x.raw(), &[Some(job)]);
    QuantRows::new(x.rows(), gate.rows(), dst)
}

fn check_gated(gate: &Packed<'_>, up: &Packed<'_>, x: Input<'_>) -> Result<(), KernelError> {
    x.check()?;
    x.fits(gate)?;
    x.fits(up)?;
    expect("rows of the up matrix", gate.rows(), up.rows())
}
