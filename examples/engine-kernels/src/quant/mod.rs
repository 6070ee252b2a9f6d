//! Activations as signed bytes.
//!
//! Each 32 columns of a row become one record of [`RECORD_BYTES`]: 32 signed bytes in -127..=127, the f32 scale
//! (largest magnitude / 127), scale x sum of the bytes, and the negated sums of the first and the last 16 bytes. Weights
//! with minimums need the former, centred weights the latter. This is ggml's Q8_1 with f32 instead of f16 scales, for
//! every weight format: finer than the 256-element scales that ggml uses beside K formats.

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::error::{KernelError, expect, multiple, product};
use crate::isa::{Isa, Level};
use crate::threads::{Shares, Threads, spread};

/// Bytes of one record.
pub const RECORD_BYTES: usize = 48;
/// Columns of one record.
pub const RECORD_COLS: usize = 32;

pub(crate) const SCALE_AT: usize = 32;
pub(crate) const SCALED_SUM_AT: usize = 36;
pub(crate) const NEGATED_SUMS_AT: usize = 40;

/// Rows that a thread takes at a time.
pub(crate) const PIECE_ROWS: usize = 16;
/// Elements below which waking the other threads costs more than it brings.
pub(crate) const PARALLEL_ELEMENTS: usize = 8192;

/// Quantised rows: what every matmul over quantised weights takes. One quantisation serves any number of matmuls.
///
/// Any address will do; kernels are fastest when it is a multiple of 16.
#[derive(Debug, Clone, Copy)]
pub struct QuantRows<'a> {
    rows: usize,
    cols: usize,
    bytes: &'a [u8],
}

impl<'a> QuantRows<'a> {
    /// Bytes of `rows` x `cols` quantised activations, or `None` where `cols` is no positive multiple of 32 or the size
    /// overflows.
    pub const fn bytes(rows: usize, cols: usize) -> Option<usize> {
        if cols == 0 || !cols.is_multiple_of(RECORD_COLS) {
            return None;
        }
        match (cols / RECORD_COLS).checked_mul(RECORD_BYTES) {
            Some(row) => row.checked_mul(rows),
            None => None,
        }
    }

    /// Interprets bytes that [`quantize_rows`] or a fused kernel has written.
    ///
    /// # Errors
    ///
    /// [`KernelError`] where the length is not [`QuantRows::bytes`].
    pub fn new(rows: usize, cols: usize, bytes: &'a [u8]) -> Result<QuantRows<'a>, KernelError> {
        expect("bytes of quantised rows", checked_bytes(rows, cols)?, bytes.len())?;
        Ok(QuantRows { rows, cols, bytes })
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns of a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The bytes, [`RECORD_BYTES`] for each 32 columns, row after row.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// A range of the rows.
    ///
    /// # Errors
    ///
    /// [`KernelError::Index`] where the range leaves the rows.
    pub fn slice(&self, rows: std::ops::Range<usize>) -> Result<QuantRows<'a>, KernelError> {
        let row_bytes = self.row_bytes();
        let bytes = (rows.start <= rows.end && rows.end <= self.rows)
            .then(|| &self.bytes[rows.start * row_bytes..rows.end * row_bytes])
            .ok_or(KernelError::Index {
                what: "range of quantised rows",
                limit: self.rows as u64,
                found: rows.end.max(rows.start) as u64,
            })?;
        Ok(QuantRows { rows: rows.len(), cols: self.cols, bytes })
    }

    /// Bytes from one row to the next.
    pub(crate) fn row_bytes(&self) -> usize {
        self.cols / RECORD_COLS * RECORD_BYTES
    }

    /// Writes the values that row `row` stands for into `out` (its columns); for tests and diagnosis.
    ///
    /// # Errors
    ///
    /// [`KernelError`] where the row does not exist or `out` is not `cols` long.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) -> Result<(), KernelError> {
        if row >= self.rows {
            return Err(KernelError::Index { what: "quantised row", limit: self.rows as u64, found: row as u64 });
        }
        expect("dequantised row", self.cols, out.len())?;
        let records = self.bytes[row * self.row_bytes()..].chunks_exact(RECORD_BYTES);
        for (out, record) in out.chunks_exact_mut(RECORD_COLS).zip(records) {
            let scale = f32::from_le_bytes([record[32], record[33], record[34], record[35]]);
            for (out, quant) in out.iter_mut().zip(record) {
                *out = f32::from(*quant as i8) * scale;
            }
        }
        Ok(())
    }
}

pub(crate) fn checked_bytes(rows: usize, cols: usize) -> Result<usize, KernelError> {
    multiple("columns of quantised rows", RECORD_COLS, cols)?;
    QuantRows::bytes(rows, cols).ok_or(KernelError::Overflow { what: "bytes of quantised rows" })
}

/// Quantises `rows` x `cols` activations (row-major) into `dst`, [`QuantRows::bytes`] long.
///
/// A block with an infinity or a NaN gets a NaN scale: whatever is multiplied with it becomes NaN, visibly.
///
/// # Errors
///
/// [`KernelError`] where `cols` is no positive multiple of 32 or a slice has the wrong length; `dst` is then untouched.
pub fn quantize_rows<'a>(
    threads: &Threads,
    isa: Isa,
    x: &[f32],
    rows: usize,
    cols: usize,
    dst: &'a mut [u8],
) -> Result<QuantRows<'a>, KernelError> {
    let bytes = checked_bytes(rows, cols)?;
    expect("activations", product("activations", rows, cols)?, x.len())?;
    expect("bytes of quantised rows", bytes, dst.len())?;
    let row_bytes = cols / RECORD_COLS * RECORD_BYTES;
    let shares = Shares::new(&mut *dst);
    spread(threads, rows, PIECE_ROWS, x.len() >= PARALLEL_ELEMENTS, &|range| {
        // SAFETY: ranges do not overlap, nor do the rows behind them.
        let dst = unsafe { shares.part(range.start * row_bytes, range.len() * row_bytes) };
        quantize(isa, &x[range.start * cols..range.end * cols], dst);
    });
    Ok(QuantRows { rows, cols, bytes: dst })
}

/// Quantises whole records: `dst` has one for each 32 elements of `x`.
pub(crate) fn quantize(isa: Isa, x: &[f32], dst: &mut [u8]) {
    let (blocks, _) = x.as_chunks::<RECORD_COLS>();
    let (records, _) = dst.as_chunks_mut::<RECORD_BYTES>();
    match isa.level() {
        // SAFETY: an `Isa` of this level exists only where its features were detected.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { x86::quantize_avx512(blocks, records) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { x86::quantize_avx2(blocks, records) },
        _ => blocks.iter().zip(records).for_each(|(block, record)| quantize_record(block, record)),
    }
}

/// The bits of infinity: larger ones are NaNs.
const INFINITE: u32 = 0x7f80_0000;

/// A block's scale and its inverse, from the bits of its largest magnitude; `None` if that is no finite number.
#[inline(always)]
fn scales(largest: u32) -> Option<(f32, f32)> {
    if largest >= INFINITE {
        return None;
    }
    let scale = f32::from_bits(largest) / 127.0;
    // A scale so small that its inverse overflows stands for numbers that no f16 scale of a weight would keep either.
    Some((scale, if scale > 1e-37 { 1.0 / scale } else { 0.0 }))
}

/// Writes what follows the bytes of a record.
#[inline(always)]
fn finish(record: &mut [u8; RECORD_BYTES], scale: f32, sums: [i32; 2]) {
    let scaled_sum = scale * (sums[0] + sums[1]) as f32;
    record[SCALE_AT..SCALE_AT + 4].copy_from_slice(&scale.to_le_bytes());
    record[SCALED_SUM_AT..SCALED_SUM_AT + 4].copy_from_slice(&scaled_sum.to_le_bytes());
    record[NEGATED_SUMS_AT..NEGATED_SUMS_AT + 4].copy_from_slice(&(-sums[0]).to_le_bytes());
    record[NEGATED_SUMS_AT + 4..NEGATED_SUMS_AT + 8].copy_from_slice(&(-sums[1]).to_le_bytes());
}

/// A record for a block with an infinity or a NaN.
#[cold]
fn poison(record: &mut [u8; RECORD_BYTES]) {
    record.fill(0);
    finish(record, f32::NAN, [0, 0]);
}

/// Quantises one record in plain Rust.
fn quantize_record(x: &[f32; RECORD_COLS], record: &mut [u8; RECORD_BYTES]) {
    /// Added to a number below 2^22 it leaves the nearest integer, ties to even, in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;

    // Magnitudes compare as their bits do, and NaNs are the largest.
    let largest = x.iter().fold(0, |largest, x| largest.max(x.to_bits() & 0x7fff_ffff));
    let Some((scale, inverse)) = scales(largest) else { return poison(record) };
    let mut sums = [0i32; 2];
    for (index, (byte, x)) in record.iter_mut().zip(x).enumerate() {
        let quant = (x * inverse + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
        *byte = quant as i8 as u8;
        sums[index / 16] += quant;
    }
    finish(record, scale, sums);
}
