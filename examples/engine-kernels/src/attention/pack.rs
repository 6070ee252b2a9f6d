//! Writing rows in formats other than f16: rounded head by head, since a scale is that of many dimensions.

use super::HOLE;
use super::cache::{KvCell, KvShape};
use super::format::{GROUP, KvFormat, MAX_DIM};
use super::rotate::rotate;
use crate::half::{f16_to_f32, f32_to_bf16, f32_to_f16, ue4m3_to_f32};
use crate::isa::multiversion;
use crate::threads::Shares;

/// The checked arguments of [`kv_write`](super::kv_write).
pub(super) struct Heads<'a> {
    pub(super) base: usize,
    pub(super) stride: usize,
    pub(super) shape: KvShape,
    pub(super) cells: &'a [KvCell],
    pub(super) keys: &'a [f32],
    pub(super) values: &'a [f32],
    pub(super) slab: Shares<'a, u16>,
}

multiversion! {
/// Writes one head of all tokens.
pub(super) fn write_head(heads: &Heads<'_>, head: usize) {
    let shape = heads.shape;
    let (dim, row) = (shape.head_dim, shape.kv_heads * shape.head_dim);
    for (index, cell) in heads.cells.iter().enumerate() {
        if cell.block == HOLE {
            continue;
        }
        let (block, slot) = (heads.base + cell.block as usize * heads.stride, cell.slot as usize);
        let from = index * row + head * dim;
        for (at, values) in [(shape.keys(head), heads.keys), (shape.values(head), heads.values)] {
            // SAFETY: these are one head's keys, or its values, in one block, which the caller leaves to this function; no two
            // parts are alive at a time.
            let part = unsafe { heads.slab.part(block + at, shape.head_units()) };
            // Keys lie with their tokens side by side, values with their dimensions.
            let steps = match at < shape.values(0) {
                true => Steps { first: slot, element: shape.block_tokens, scale: slot, group: shape.block_tokens },
                false => {
                    let scales = shape.format.scales(dim);
                    Steps { first: slot * dim, element: 1, scale: slot * scales, group: 1 }
                }
            };
            write_row(shape, part, &values[from..from + dim], steps);
        }
    }
}
}

/// Where a row's elements and scales go, in elements and in scales.
#[derive(Clone, Copy)]
struct Steps {
    first: usize,
    element: usize,
    scale: usize,
    group: usize,
}

#[inline(always)]
fn write_row(shape: KvShape, part: &mut [u16], row: &[f32], steps: Steps) {
    let (elements, scales) = part.split_at_mut(shape.head_dim * shape.block_tokens * shape.format.bits() / 16);
    match shape.format {
        KvFormat::F16 => row.iter().enumerate().for_each(|(dim, x)| elements[steps.at(dim)] = f32_to_f16(*x)),
        KvFormat::Bf16 => row.iter().enumerate().for_each(|(dim, x)| elements[steps.at(dim)] = f32_to_bf16(*x)),
        KvFormat::Fp8 => {
            // The largest becomes 448, which reads as 1.75: bits of E4M3 are read with the bias of f16.
            let (scale, inverse) = scale(largest(row) / 1.75);
            scales[steps.scale] = scale;
            for (dim, x) in row.iter().enumerate() {
                set_byte(elements, steps.at(dim), e4m3(x * inverse * 256.0));
            }
        }
        KvFormat::Q8_0 => {
            for (group, row) in row.chunks_exact(GROUP).enumerate() {
                let (scale, inverse) = scale(largest(row) / 127.0);
                scales[steps.scale + group * steps.group] = scale;
                for (dim, x) in row.iter().enumerate() {
                    // Out of range and not a number become the nearest there is.
                    set_byte(elements, steps.at(group * GROUP + dim), (x * inverse).round() as i8 as u8);
                }
            }
        }
        KvFormat::Nvfp4 => write_nvfp4((elements, scales), row, steps),
        KvFormat::Q4_0Rotated => {
            let mut turned = [0.0; MAX_DIM];
            let turned = &mut turned[..row.len()];
            turned.copy_from_slice(row);
            rotate(turned);
            write_nibbles((elements, scales), turned, steps, nearest_scale);
        }
        // Eight steps lead to the largest on its side, seven to the other.
        KvFormat::Q4_0 => write_nibbles((elements, scales), row, steps, |row| scale(extreme(row) / -8.0)),
    }
}

#[inline(always)]
fn write_nibbles(
    (elements, scales): (&mut [u16], &mut [u16]),
    row: &[f32],
    steps: Steps,
    scale_of: impl Fn(&[f32]) -> (u16, f32),
) {
    for (group, row) in row.chunks_exact(GROUP).enumerate() {
        let (scale, inverse) = scale_of(row);
        scales[steps.scale + group * steps.group] = scale;
        let nibble = |x| nibble(x, inverse);
        let (low, high) = row.split_at(GROUP / 2);
        for (index, (low, high)) in low.iter().zip(high).enumerate() {
            let at = steps.packed(group * GROUP / 2 + index);
            set_byte(elements, at, nibble(*low) | nibble(*high) << 4);
        }
    }
}

/// As the CUDA kernels do it, in f32 step by step: the scale of the row leaves numbers of at most 6 * 448, those of 16 of them at most 6.
#[inline(always)]
fn write_nvfp4((elements, scales): (&mut [u16], &mut [u16]), row: &[f32], steps: Steps) {
    let all = largest(row);
    let of_all = if all > 1e-30 { all / (6.0 * 448.0) } else { 1.0 };
    let scale_of = |half: &[f32]| {
        let stored = e4m3(largest(half) / (6.0 * of_all));
        let read = ue4m3_to_f32(stored) * of_all;
        (stored, if read == 0.0 { 0.0 } else { 1.0 / read })
    };
    let mut groups = 0;
    for row in row.chunks_exact(GROUP) {
        let (low, high) = row.split_at(GROUP / 2);
        let ((of_low, low_inverse), (of_high, high_inverse)) = (scale_of(low), scale_of(high));
        scales[steps.scale + groups * steps.group] = u16::from(of_low) | u16::from(of_high) << 8;
        for (index, (low, high)) in low.iter().zip(high).enumerate() {
            let at = steps.packed(groups * GROUP / 2 + index);
            set_byte(elements, at, e2m1(low * low_inverse) | e2m1(high * high_inverse) << 4);
        }
        groups += 1;
    }
    let bits = of_all.to_bits();
    scales[steps.scale + groups * steps.group] = bits as u16;
    scales[steps.scale + (groups + 1) * steps.group] = (bits >> 16) as u16;
}

/// The nearest e2m1, of two the even one; 6 for what is larger.
#[inline(always)]
fn e2m1(x: f32) -> u8 {
    let size = x.abs();
    let even = [0.25, 1.25, 2.5, 5.0].map(|half| u8::from(size > half));
    let odd = [0.75, 1.75, 3.5].map(|half| u8::from(size >= half));
    even.into_iter().chain(odd).sum::<u8>() | (x.to_bits() >> 28) as u8 & 8
}

/// The nearest of sixteen steps: the one of zero is the eighth.
#[inline(always)]
fn nibble(x: f32, inverse: f32) -> u8 {
    (x * inverse + 8.5).clamp(0.0, 15.0) as u8
}

/// The element that is largest without its sign, with it.
#[inline(always)]
fn extreme(row: &[f32]) -> f32 {
    row.iter().fold(0.0f32, |most, x| if x.abs() > most.abs() { *x } else { most })
}

/// Of scales that put the largest of a row at seven to nine steps, on the longer or the shorter side, the one with the least squares of
/// what is rounded off.
#[inline(always)]
fn nearest_scale(row: &[f32]) -> (u16, f32) {
    let extreme = extreme(row);
    let (mut least, mut best) = (f32::INFINITY, scale(extreme / -8.0));
    for quarter in 0..9u8 {
        let at = 7.0 + f32::from(quarter) / 4.0;
        for steps in [-at, at] {
            let (stored, inverse) = scale(extreme / steps);
            let read = f16_to_f32(stored);
            let off = |x: &f32| (f32::from(nibble(*x, inverse)) - 8.0) * read - x;
            let squares = row.iter().fold(0.0, |sum: f32, x| sum + off(x) * off(x));
            if squares < least {
                (least, best) = (squares, (stored, inverse));
            }
        }
    }
    best
}

impl Steps {
    /// Where dimension `dim` goes.
    #[inline(always)]
    fn at(self, dim: usize) -> usize {
        self.first + dim * self.element
    }

    /// Where the byte of two dimensions goes: of keys, rows of both; of values, half as many bytes a row.
    #[inline(always)]
    fn packed(self, pair: usize) -> usize {
        match self.element {
            1 => self.first / 2 + pair,
            element => self.first + pair * element,
        }
    }
}

/// Byte `at` of units: low half first, as memory has it where the kernels run.
#[inline(always)]
fn set_byte(units: &mut [u16], at: usize, byte: u8) {
    let unit = &mut units[at / 2];
    let mut bytes = unit.to_ne_bytes();
    bytes[at % 2] = byte;
    *unit = u16::from_ne_bytes(bytes);
}

#[inline(always)]
fn largest(row: &[f32]) -> f32 {
    row.iter().fold(0.0f32, |most, x| if x.abs() > most { x.abs() } else { most })
}

/// A scale as it is stored, and what elements are multiplied with for it: nothing where it vanishes.
#[inline(always)]
fn scale(exact: f32) -> (u16, f32) {
    let stored = f32_to_f16(exact.clamp(-65504.0, 65504.0));
    let read = f16_to_f32(stored);
    (stored, if read == 0.0 { 0.0 } else { 1.0 / read })
}

/// The nearest E4M3 number, ties to even; 448 for what is larger, and for what is none.
#[inline(always)]
fn e4m3(x: f32) -> u8 {
    let sign = (x.to_bits() >> 24) as u8 & 0x80;
    let rest = x.abs();
    if rest < 0.015_625 {
        // Below 2^-6 numbers are 2^-9 apart; the eighth is the first of the others.
        return sign | (rest * 512.0).round_ties_even() as u8;
    }
    let bits = rest.to_bits();
    let rounded = (u64::from(bits) + 0x7_ffff + u64::from(bits >> 20 & 1)) >> 20;
    sign | rounded.saturating_sub(120 << 3).min(0x7e) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of E4M3 bits, from the definition.
    fn value(bits: u8) -> f32 {
        let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f32::from(bits & 7) / 8.0);
        let value = match exponent {
            0 => mantissa * 2f32.powi(-6),
            _ => (1.0 + mantissa) * 2f32.powi(exponent - 7),
        };
        if bits & 0x80 == 0 { value } else { -value }
    }

    #[test]
    fn e4m3_is_the_nearest() {
        let all: Vec<u8> = (0..=255).filter(|bits| bits & 0x7f != 0x7f).collect();
        for bits in &all {
            assert_eq!(e4m3(value(*bits)), *bits, "{bits:#x}");
        }
        for step in -9200i16..9200 {
            let x = f32::from(step) * 0.05 + 0.001;
            let nearest = all.iter().map(|bits| (value(*bits) - x).abs()).fold(f32::INFINITY, f32::min);
            assert!((value(e4m3(x)) - x).abs() <= nearest, "{x}");
        }
        assert_eq!([e4m3(1e9), e4m3(-1e9), e4m3(f32::NAN) & 0x7f], [0x7e, 0xfe, 0x7e]);
        // A tie goes to the even mantissa.
        assert_eq!([value(e4m3(1.0625)), value(e4m3(1.1875))], [1.0, 1.25]);
        assert!((0..0x7f).all(|bits| ue4m3_to_f32(bits) == value(bits)));
    }

    #[test]
    fn e2m1_is_the_nearest() {
        let all = [0.0f32, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        let value = |bits: u8| all[usize::from(bits & 7)] * if bits & 8 == 0 { 1.0 } else { -1.0 };
        for step in -700i16..700 {
            let x = f32::from(step) * 0.01 + 0.001;
            let nearest = all.iter().map(|size| (size - x.abs()).abs()).fold(f32::INFINITY, f32::min);
            assert!((value(e2m1(x)) - x).abs() <= nearest, "{x}");
            assert_eq!(e2m1(x) & 8 == 8, x < 0.0, "{x}");
        }
        // A tie goes to the even mantissa, and what is no number to zero, as on CUDA devices.
        let ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0].map(|tie| value(e2m1(tie)));
        assert_eq!(ties, [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]);
        assert_eq!([e2m1(1e9), e2m1(-1e9), e2m1(f32::NAN) & 7], [7, 15, 0]);
    }
}
