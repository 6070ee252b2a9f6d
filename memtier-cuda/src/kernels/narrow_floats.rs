//! Packing matrices of f32 into e4m3 and NVFP4 on the host.

use memtier::{E2M1x2, F8E4M3};

/// The largest e4m3 and the largest e2m1.
const MOST_E4M3: f32 = 448.0;
const MOST_E2M1: f32 = 6.0;
/// Elements that share a scale.
const BLOCK: usize = 16;

/// A matrix that does not have the shape that was said, or one that cannot be packed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{rows} rows of {columns} elements: {found} values were given, and columns must be a multiple of 128")]
pub struct PackError {
    /// Rows.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// Values that were given.
    pub found: usize,
}

fn check(values: &[f32], rows: usize, columns: usize) -> Result<(), PackError> {
    let fits = rows.checked_mul(columns) == Some(values.len()) && columns > 0 && columns.is_multiple_of(128);
    if fits { Ok(()) } else { Err(PackError { rows, columns, found: values.len() }) }
}

/// The nearest e4m3, ties to even, at most 448 either way; NaN stays NaN.
fn e4m3(x: f32) -> u8 {
    let sign = ((x.to_bits() >> 31) as u8) << 7;
    let size = x.abs();
    if size.is_nan() {
        return sign | 0x7f;
    }
    if size >= MOST_E4M3 {
        return sign | 0x7e;
    }
    // Exponents below that of 2^-6 are not there: its neighbours are 2^-9 apart.
    let exponent = ((size.to_bits() >> 23) as i32 - 127).max(-6);
    let steps = (size * 2f32.powi(3 - exponent)).round_ties_even() as i32;
    // Eight steps are the implicit bit; sixteen carry into the exponent.
    sign | (((exponent + 6) << 3) + steps) as u8
}

/// What an e4m3 is worth.
fn of_e4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
    let size = if exponent == 0 { mantissa * 2f32.powi(-9) } else { (8.0 + mantissa) * 2f32.powi(exponent - 10) };
    if bits & 0x80 != 0 { -size } else { size }
}

/// The nearest e2m1, ties to even, at most 6 either way.
fn e2m1(x: f32) -> u8 {
    // Half way between neighbours; on the way itself the even one counts.
    let size = x.abs();
    let above = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
    let bits = above.iter().enumerate().filter(|(at, half)| size > **half || size == **half && at % 2 == 1).count();
    ((x.to_bits() >> 31) as u8) << 3 | bits as u8
}

/// A matrix of e4m3.
#[derive(Clone, Debug)]
pub struct Fp8 {
    /// Row by row.
    pub data: Vec<F8E4M3>,
    /// What the elements of each row are multiplied by.
    pub scales: Vec<f32>,
}

/// Packs a matrix into e4m3, row by row, each scaled by its largest element.
///
/// # Errors
/// [`PackError`] for another number of values, or columns that are no multiple of 128.
///
/// ```
/// let packed = memtier_cuda::kernels::pack_fp8(&[0.5; 256], 2, 128)?;
/// assert_eq!((packed.data[0].0, packed.scales.len()), (0x7e, 2)); // 448, for each row
/// # Ok::<_, memtier_cuda::kernels::PackError>(())
/// ```
pub fn pack_fp8(values: &[f32], rows: usize, columns: usize) -> Result<Fp8, PackError> {
    check(values, rows, columns)?;
    let (mut data, mut scales) = (Vec::with_capacity(values.len()), Vec::with_capacity(rows));
    for row in values.chunks(columns) {
        let most = largest(row);
        let scale = if most > 0.0 { most / MOST_E4M3 } else { 1.0 };
        data.extend(row.iter().map(|x| F8E4M3(e4m3(x / scale))));
        scales.push(scale);
    }
    Ok(Fp8 { data, scales })
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// A matrix of NVFP4.
#[derive(Clone, Debug)]
pub struct Nvfp4 {
    /// Row by row, two to a byte.
    pub data: Vec<E2M1x2>,
    /// A scale for every 16 elements: 512 bytes for 128 rows x 64 elements, those of 128 rows one behind the other. Rows that are missing
    /// from the last 128 have scales of zero.
    pub scales: Vec<F8E4M3>,
    /// What everything is multiplied by besides.
    pub scale: f32,
}

/// Bytes of scales of a matrix of NVFP4.
pub(super) fn nvfp4_scales(rows: usize, columns: usize) -> usize {
    rows.div_ceil(128).saturating_mul(columns / 64).saturating_mul(512)
}

/// Where the scale of 16 elements is.
fn scale_at(row: usize, column: usize, columns: usize) -> usize {
    let block = row / 128 * (columns / 64) + column / 64;
    block * 512 + row % 32 * 16 + row % 128 / 32 * 4 + column / BLOCK % 4
}

/// Packs a matrix into NVFP4: every 16 elements scaled by their largest one, and all of them so that these scales use the range that
/// e4m3 has.
///
/// # Errors
/// [`PackError`] for another number of values, or columns that are no multiple of 128.
pub fn pack_nvfp4(values: &[f32], rows: usize, columns: usize) -> Result<Nvfp4, PackError> {
    check(values, rows, columns)?;
    let most = largest(values);
    let scale = if most > 0.0 { most / (MOST_E4M3 * MOST_E2M1) } else { 1.0 };
    let mut data = vec![E2M1x2([0]); values.len() / 2];
    let mut scales = vec![F8E4M3(0); nvfp4_scales(rows, columns)];
    for (index, block) in values.chunks(BLOCK).enumerate() {
        let first = index * BLOCK;
        let bits = e4m3(largest(block) / MOST_E2M1 / scale);
        scales[scale_at(first / columns, first % columns, columns)] = F8E4M3(bits);
        let by = of_e4m3(bits) * scale;
        for (at, x) in block.iter().enumerate() {
            let four = if by > 0.0 { e2m1(x / by) } else { 0 };
            data[(first + at) / 2].0[0] |= four << (at % 2 * 4);
        }
    }
    Ok(Nvfp4 { data, scales, scale })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_e4m3_is_its_own_nearest_and_ties_go_to_even() {
        for bits in (0..=0xffu8).filter(|bits| bits & 0x7f != 0x7f) {
            assert_eq!(e4m3(of_e4m3(bits)), bits, "{bits:#x}");
            if bits & 0x7f < 0x7e {
                let half = (of_e4m3(bits) + of_e4m3(bits + 1)) / 2.0;
                assert_eq!(e4m3(half) & 1, 0, "half way from {bits:#x}");
            }
        }
        assert_eq!((e4m3(1e9), e4m3(-1e9), e4m3(f32::NAN) & 0x7f), (0x7e, 0xfe, 0x7f));
    }

    #[test]
    fn every_e2m1_is_its_own_nearest_and_ties_go_to_even() {
        let values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for (bits, value) in values.iter().enumerate() {
            assert_eq!((e2m1(*value), e2m1(-value)), (bits as u8, bits as u8 | 8));
        }
        for (bits, pair) in values.windows(2).enumerate() {
            let (half, even) = ((pair[0] + pair[1]) / 2.0, bits.next_multiple_of(2) as u8);
            assert_eq!(e2m1(half), even, "{half}");
            assert_eq!((e2m1(half - 1e-3), e2m1(half + 1e-3)), (bits as u8, bits as u8 + 1));
        }
    }

    #[test]
    fn scales_lie_each_at_a_place_of_its_own() {
        let (rows, columns) = (200, 256);
        let mut seen = vec![false; nvfp4_scales(rows, columns)];
        for row in 0..rows {
            for column in (0..columns).step_by(BLOCK) {
                let at = scale_at(row, column, columns);
                assert!(!std::mem::replace(&mut seen[at], true), "{row} {column}");
            }
        }
        assert_eq!(seen.len(), 256 * 256 / BLOCK);
        assert_eq!(scale_at(33, 16, 64), 16 + 4 + 1);
    }

    #[test]
    fn another_number_of_values_is_refused() {
        assert!(pack_fp8(&[0.0; 128], 2, 128).is_err() && pack_nvfp4(&[0.0; 64], 1, 64).is_err());
    }
}
