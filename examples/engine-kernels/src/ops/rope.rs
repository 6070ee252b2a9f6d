//! Rotary position embedding.

use crate::error::{KernelError, expect, multiple, product};
use crate::isa::{Isa, multiversion};
use crate::threads::{Shares, Threads, spread};

/// Which dimensions of a head form a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// Neighbours, 2i and 2i + 1: GGUF files of the Llama architecture, whose query and key rows are permuted for it.
    Interleaved,
    /// Halves, i and i + dims / 2: Gemma, Qwen and others ("neox").
    Halves,
}

/// The angle of pair `i` at a position is `position * scale * base^(-2i / dims) / factors[i]`.
#[derive(Debug, Clone, Copy)]
pub struct RopeParams<'a> {
    /// Dimensions of a head that rotate: its first ones, an even number.
    pub dims: usize,
    /// The frequency base.
    pub base: f32,
    /// Linear scaling of positions; 1 where the model has none (GGUF's `1 / rope.scaling.factor`).
    pub scale: f32,
    /// `dims / 2` divisors of frequencies (`rope_freqs.weight` of Llama 3 files).
    pub factors: Option<&'a [f32]>,
}

/// Cosines and sines for some positions: computed once for a batch and used by every layer with the same parameters.
#[derive(Debug, Clone, Copy)]
pub struct RopeAngles<'a> {
    dims: usize,
    rows: usize,
    /// For each row `dims / 2` cosines, then as many sines.
    table: &'a [f32],
}

impl<'a> RopeAngles<'a> {
    /// Elements of a table for `rows` positions, or `None` on overflow.
    pub const fn elements(rows: usize, dims: usize) -> Option<usize> {
        rows.checked_mul(dims)
    }

    /// Interprets a table that [`rope_angles`] has written.
    ///
    /// # Errors
    ///
    /// [`KernelError`] where `dims` is odd or the length is not [`RopeAngles::elements`].
    pub fn new(rows: usize, dims: usize, table: &'a [f32]) -> Result<RopeAngles<'a>, KernelError> {
        multiple("rotated dimensions", 2, dims)?;
        expect("table of angles", product("table of angles", rows, dims)?, table.len())?;
        Ok(RopeAngles { dims, rows, table })
    }
}

/// Fills `table` with the cosines and sines of `positions`; computed in f64 and rounded once.
///
/// # Errors
///
/// [`KernelError`] where `dims` is odd, the factors are not `dims / 2` or the table has the wrong length.
pub fn rope_angles<'a>(
    threads: &Threads,
    params: RopeParams<'_>,
    positions: &[u32],
    table: &'a mut [f32],
) -> Result<RopeAngles<'a>, KernelError> {
    let dims = params.dims;
    multiple("rotated dimensions", 2, dims)?;
    expect("table of angles", product("table of angles", positions.len(), dims)?, table.len())?;
    if let Some(factors) = params.factors {
        expect("frequency factors", dims / 2, factors.len())?;
    }
    let shares = Shares::new(&mut *table);
    // Pair by pair, for the power is the costly part; all rows of a pair share it.
    spread(threads, positions.len(), 16, true, &|range| {
        // SAFETY: ranges do not overlap, nor do the rows behind them.
        let rows = unsafe { shares.part(range.start * dims, range.len() * dims) };
        for pair in 0..dims / 2 {
            let exponent = -((2 * pair) as f64) / dims as f64;
            let divisor = params.factors.map_or(1.0, |factors| f64::from(factors[pair]));
            let frequency = f64::from(params.base).powf(exponent) * f64::from(params.scale) / divisor;
            for (row, position) in rows.chunks_exact_mut(dims).zip(&positions[range.clone()]) {
                let (sin, cos) = (f64::from(*position) * frequency).sin_cos();
                (row[pair], row[dims / 2 + pair]) = (cos as f32, sin as f32);
            }
        }
    });
    RopeAngles::new(positions.len(), dims, table)
}

/// Rotates `x`, rows of `heads` x `head_dim`, each by its row of `angles`.
///
/// # Errors
///
/// [`KernelError`] where `head_dim` is smaller than the rotated dimensions or `x` has the wrong length.
pub fn rope(
    threads: &Threads,
    isa: Isa,
    style: RopeStyle,
    angles: RopeAngles<'_>,
    x: &mut [f32],
    heads: usize,
    head_dim: usize,
) -> Result<(), KernelError> {
    let row = product("row of heads", heads, head_dim)?;
    expect("rows of heads", product("rows of heads", angles.rows, row)?, x.len())?;
    if head_dim < angles.dims {
        return Err(KernelError::Shape {
            what: "head dimension (at least the rotated ones)",
            expected: angles.dims as u64,
            found: head_dim as u64,
        });
    }
    let worthwhile = x.len() >= crate::quant::PARALLEL_ELEMENTS;
    let shares = Shares::new(x);
    spread(threads, angles.rows, 16, worthwhile, &|range| {
        for index in range {
            // SAFETY: ranges do not overlap, nor do the rows behind their indices.
            let x = unsafe { shares.part(index * row, row) };
            let (cos, sin) = angles.table[index * angles.dims..][..angles.dims].split_at(angles.dims / 2);
            match style {
                RopeStyle::Interleaved => interleaved(isa, x, head_dim, cos, sin),
                RopeStyle::Halves => halves(isa, x, head_dim, cos, sin),
            }
        }
    });
    Ok(())
}

multiversion! {
    fn interleaved(row: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
        for head in row.chunks_exact_mut(head_dim) {
            let (pairs, _) = head.as_chunks_mut::<2>();
            for ((pair, cos), sin) in pairs.iter_mut().zip(cos).zip(sin) {
                *pair = [pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos];
            }
        }
    }
}

multiversion! {
    fn halves(row: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
        for head in row.chunks_exact_mut(head_dim) {
            let (first, second) = head[..2 * cos.len()].split_at_mut(cos.len());
            for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
            }
        }
    }
}
