//! Random blocks of model files, and their weights as ggml's own code unpacks them.

use memtier::{PackedFormat, Q4_0, Q4_1, Q4_K, Q5_0, Q6_K, Q8_0, f16};
use memtier_cuda::kernels::{Tileable, tile};

use crate::support::Rng;

/// A block whose scale is a small f16 (and whose offset is another), the other bytes at random.
pub(crate) trait Random: Tileable + Sized {
    fn random(rng: &mut Rng) -> Self;
    /// Its weights, each for itself, as ggml's own code unpacks them.
    fn values(&self) -> Vec<f64>;
}

fn half(bytes: &[u8]) -> f64 {
    f64::from(f16::from_le_bytes([bytes[0], bytes[1]]).to_f32())
}

/// Random bytes, with f16 of about 0.01 to 0.02 at these places; in super-blocks, which multiply them once more, 0.0001.
fn bytes<const N: usize>(rng: &mut Rng, scales: &[usize]) -> [u8; N] {
    let mut bytes = std::array::from_fn(|_| rng.next() as u8);
    let size = if N > 100 { 1e-4 } else { 1e-2 };
    for at in scales {
        let scale = f16::from_f32(size * (1.0 + rng.below(1000) as f32 * 1e-3));
        bytes[*at..at + 2].copy_from_slice(&scale.to_le_bytes());
    }
    bytes
}

fn nibble(bytes: &[u8], at: usize) -> u8 {
    bytes[at % 16] >> (at / 16 * 4) & 15
}

impl Random for Q8_0 {
    fn random(rng: &mut Rng) -> Self {
        Q8_0(bytes(rng, &[0]))
    }
    fn values(&self) -> Vec<f64> {
        self.0[2..].iter().map(|byte| half(&self.0) * f64::from(byte.cast_signed())).collect()
    }
}
impl Random for Q4_0 {
    fn random(rng: &mut Rng) -> Self {
        Q4_0(bytes(rng, &[0]))
    }
    fn values(&self) -> Vec<f64> {
        (0..32).map(|at| half(&self.0) * (f64::from(nibble(&self.0[2..], at)) - 8.0)).collect()
    }
}
impl Random for Q4_1 {
    fn random(rng: &mut Rng) -> Self {
        Q4_1(bytes(rng, &[0, 2]))
    }
    fn values(&self) -> Vec<f64> {
        let offset = half(&self.0[2..]);
        (0..32).map(|at| half(&self.0) * f64::from(nibble(&self.0[4..], at)) + offset).collect()
    }
}
impl Random for Q5_0 {
    fn random(rng: &mut Rng) -> Self {
        Q5_0(bytes(rng, &[0]))
    }
    fn values(&self) -> Vec<f64> {
        let fifth = |at: usize| self.0[2 + at / 8] >> (at % 8) & 1;
        (0..32).map(|at| half(&self.0) * (f64::from(nibble(&self.0[6..], at) | fifth(at) << 4) - 16.0)).collect()
    }
}
impl Random for Q4_K {
    fn random(rng: &mut Rng) -> Self {
        Q4_K(bytes(rng, &[0, 2]))
    }
    fn values(&self) -> Vec<f64> {
        let six = &self.0[4..16];
        let of = |j: usize| match j < 4 {
            true => (six[j] & 63, six[j + 4] & 63),
            false => (six[j + 4] & 15 | six[j - 4] >> 6 << 4, six[j + 4] >> 4 | six[j] >> 6 << 4),
        };
        let value = |at: usize| {
            let (scale, offset) = of(at / 32);
            let four = self.0[16 + at / 64 * 32 + at % 32] >> (at % 64 / 32 * 4) & 15;
            half(&self.0) * f64::from(scale) * f64::from(four) - half(&self.0[2..]) * f64::from(offset)
        };
        (0..256).map(value).collect()
    }
}
impl Random for Q6_K {
    fn random(rng: &mut Rng) -> Self {
        Q6_K(bytes(rng, &[208]))
    }
    fn values(&self) -> Vec<f64> {
        let value = |at: usize| {
            let (part, l, quarter) = (at / 128, at % 32, at % 128 / 32);
            let low = self.0[part * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
            let high = self.0[128 + part * 32 + l] >> (quarter * 2) & 3;
            let scale = self.0[192 + part * 8 + l / 16 + quarter * 2].cast_signed();
            half(&self.0[208..]) * f64::from(scale) * (f64::from(low | high << 4) - 32.0)
        };
        (0..256).map(value).collect()
    }
}

/// A matrix of random blocks: its tiles and its values.
pub(crate) fn matrix<B: Random>(rng: &mut Rng, rows: usize, columns: usize) -> (Vec<u8>, Vec<f64>) {
    let blocks: Vec<B> = (0..rows * columns / B::PER).map(|_| B::random(rng)).collect();
    let mut tiles = vec![0; B::TILING.bytes(&[rows, columns]).unwrap().count() as usize];
    tile(&blocks, rows, columns, &mut tiles).unwrap();
    (tiles, blocks.iter().flat_map(Random::values).collect())
}
