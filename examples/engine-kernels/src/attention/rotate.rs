//! The rotation that rows go through before they are rounded to four bits.
//!
//! A scale is that of the largest of 32 dimensions. Where one dimension is much larger than the others, as some of a key's are in
//! most models, the others share what few steps are left. A rotation spreads the large one over all dimensions.
//!
//! It is a Walsh-Hadamard transform H, scaled to keep lengths: symmetric, and its own inverse. So `q * k` is `Hq * Hk`, and a weighted
//! sum of rotated values is the rotated sum: queries are rotated once, keys and values as they are written, the output once.

use std::mem::MaybeUninit;

use super::format::MAX_DIM;
use super::kernel::{Lane, MAX_LANES};

/// Rotates a row of a head, or rotates it back. Dimensions are mixed in parts of the largest power of two that divides the row.
///
/// Sums in one order, so that the levels agree to the bit.
#[inline(always)]
pub(super) fn rotate(row: &mut [f32]) {
    let width = 1 << row.len().trailing_zeros();
    let norm = 1.0 / (width as f32).sqrt();
    for part in row.chunks_exact_mut(width) {
        let mut half = 1;
        while half < width {
            for pair in part.chunks_exact_mut(2 * half) {
                let (low, high) = pair.split_at_mut(half);
                for (low, high) in low.iter_mut().zip(high) {
                    (*low, *high) = (*low + *high, *low - *high);
                }
            }
            half *= 2;
        }
        part.iter_mut().for_each(|x| *x *= norm);
    }
}

/// The rotated queries of some lanes, and those for the sinks.
pub(super) struct Rotated(MaybeUninit<[[f32; MAX_DIM]; 2 * MAX_LANES]>);

impl Rotated {
    #[inline(always)]
    pub(super) const fn new() -> Rotated {
        Rotated(MaybeUninit::uninit())
    }

    /// Rotates the queries of `lanes` into here, and has the lanes look with those.
    ///
    /// # Safety
    ///
    /// The lanes' queries are valid for `dim` elements, which are at most `MAX_DIM`; there are at most `MAX_LANES`. The lanes' pointers
    /// are valid for as long as this lives and is not used again.
    #[inline(always)]
    pub(super) unsafe fn fill(&mut self, lanes: &mut [Lane], dim: usize) {
        let mut rows = self.0.as_mut_ptr().cast::<f32>();
        for lane in lanes {
            for q in [&mut lane.q, &mut lane.q_sinks] {
                // SAFETY: both have room for `dim` elements, and the row is this buffer's own.
                let row = unsafe {
                    rows.copy_from_nonoverlapping(*q, dim);
                    std::slice::from_raw_parts_mut(rows, dim)
                };
                rotate(row);
                *q = row.as_ptr();
                rows = rows.wrapping_add(MAX_DIM);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(dim: usize, seed: u32) -> Vec<f32> {
        let at = |index: u32| (index * 3 + seed).wrapping_mul(2_654_435_761) >> 8;
        (0..dim as u32).map(|index| at(index) as f32 / (1 << 23) as f32 - 1.0).collect()
    }

    #[test]
    fn it_keeps_products_and_is_its_own_inverse() {
        for dim in [16, 32, 64, 80, 96, 128, 256] {
            let (q, k) = (row(dim, 1), row(dim, 7));
            let product = |q: &[f32], k: &[f32]| -> f64 { q.iter().zip(k).map(|(q, k)| f64::from(q * k)).sum() };
            let (mut turned_q, mut turned_k) = (q.clone(), k.clone());
            rotate(&mut turned_q);
            rotate(&mut turned_k);
            assert!(turned_q != q, "{dim}");
            assert!((product(&turned_q, &turned_k) - product(&q, &k)).abs() < 1e-5, "{dim}");
            rotate(&mut turned_q);
            assert!(turned_q.iter().zip(&q).all(|(back, q)| (back - q).abs() < 1e-6), "{dim}");
        }
    }

    #[test]
    fn what_is_large_in_one_dimension_is_spread() {
        let mut row = [0.0; 64];
        row[13] = 8.0;
        rotate(&mut row);
        assert!(row.iter().all(|x| x.abs() == 1.0), "{row:?}");
    }
}
