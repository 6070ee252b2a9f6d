//! Shared by the integration tests: random numbers, random blocks, and dequantisation written independently of the crate.
#![allow(dead_code, unreachable_pub, reason = "each test binary includes this file and uses a part")]

use engine_kernels::{Format, Isa, Packed, QuantRows, Threads, pack, packed_bytes, quantize_rows};

/// A small generator: the tests need the same numbers every time.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit
    }

    /// Uniform in -1..1.
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Roughly normal, with the heavy tail that activations have.
    pub fn activation(&mut self) -> f32 {
        let sum = self.unit() + self.unit() + self.unit();
        if self.below(50) == 0 { sum * 6.0 } else { sum }
    }

    pub fn activations(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.activation()).collect()
    }
}

/// f16 by way of the definition, for a finite value.
pub fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    assert!(exponent < 31, "finite");
    let value = if exponent == 0 {
        fraction / 1024.0 * 2f64.powi(-14)
    } else {
        (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15)
    };
    (if sign == 1 { -value } else { value }) as f32
}

/// A random f16 of magnitude about 2^`exponent`.
fn random_half(rng: &mut Rng, exponent: i32, signed: bool) -> [u8; 2] {
    let sign = if signed { (rng.next() & 1) as u16 } else { 0 };
    let exponent = (15 + exponent + rng.below(3) as i32 - 1).clamp(0, 30) as u16;
    (sign << 15 | exponent << 10 | (rng.next() & 1023) as u16).to_le_bytes()
}

/// Random raw rows whose values are of the order of 0.1 to 1.
pub fn random_raw(rng: &mut Rng, format: Format, rows: usize, cols: usize) -> Vec<u8> {
    let mut raw = vec![0u8; rows * format.row_bytes(cols).unwrap()];
    raw.iter_mut().for_each(|byte| *byte = rng.next() as u8);
    with_random_scales(rng, format, raw)
}

/// The raw rows with sensible f16 scales, and floats, in place of whatever bits they have.
pub fn with_random_scales(rng: &mut Rng, format: Format, mut raw: Vec<u8>) -> Vec<u8> {
    for block in raw.chunks_exact_mut(format.block_bytes()) {
        let mut put = |at: usize, exponent: i32, signed: bool| {
            let half = random_half(rng, exponent, signed);
            block[at..at + 2].copy_from_slice(&half);
        };
        match format {
            Format::F32 => block.copy_from_slice(&rng.unit().to_le_bytes()),
            Format::F16 => put(0, -2, true),
            Format::BF16 => {
                let bits = rng.unit().to_bits();
                block.copy_from_slice(&((bits >> 16) as u16).to_le_bytes());
            }
            Format::Q4_0 => put(0, -4, true),
            Format::Q5_0 => put(0, -5, true),
            Format::Q8_0 => put(0, -8, true),
            Format::Q4_1 | Format::Q5_1 => {
                put(0, -4, true);
                put(2, -1, true);
            }
            Format::Q2_K => {
                put(80, -6, false);
                put(82, -6, false);
            }
            Format::Q3_K => put(108, -7, true),
            Format::Q4_K | Format::Q5_K => {
                put(0, -9, false);
                put(2, -9, false);
            }
            Format::Q6_K => put(208, -12, true),
            _ => unreachable!(),
        }
    }
    raw
}

fn half_at(raw: &[u8], at: usize) -> f32 {
    half(u16::from_le_bytes([raw[at], raw[at + 1]]))
}

/// Dequantises a raw row the way ggml's reference code goes about it.
pub fn reference_row(format: Format, raw: &[u8], cols: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(cols);
    for block in raw.chunks_exact(format.block_bytes()) {
        match format {
            Format::F32 => out.push(f32::from_le_bytes(block.try_into().unwrap())),
            Format::F16 => out.push(half_at(block, 0)),
            Format::BF16 => out.push(f32::from_bits(u32::from(u16::from_le_bytes([block[0], block[1]])) << 16)),
            Format::Q4_0 => legacy(&mut out, &block[2..], None, half_at(block, 0), 8, None),
            Format::Q4_1 => legacy(&mut out, &block[4..], None, half_at(block, 0), 0, Some(half_at(block, 2))),
            Format::Q5_0 => legacy(&mut out, &block[6..], Some(&block[2..6]), half_at(block, 0), 16, None),
            Format::Q5_1 => {
                legacy(&mut out, &block[8..], Some(&block[4..8]), half_at(block, 0), 0, Some(half_at(block, 2)))
            }
            Format::Q8_0 => out.extend(block[2..].iter().map(|q| f32::from(*q as i8) * half_at(block, 0))),
            Format::Q2_K => q2_k(&mut out, block),
            Format::Q3_K => q3_k(&mut out, block),
            Format::Q4_K | Format::Q5_K => q45_k(&mut out, block, format == Format::Q5_K),
            Format::Q6_K => q6_k(&mut out, block),
            _ => unreachable!(),
        }
    }
    assert_eq!(out.len(), cols);
    out
}

fn legacy(out: &mut Vec<f32>, nibbles: &[u8], fifth: Option<&[u8]>, d: f32, bias: i32, m: Option<f32>) {
    let bits = fifth.map_or(0, |raw| u32::from_le_bytes(raw.try_into().unwrap()));
    for j in 0..32 {
        let nibble = if j < 16 { nibbles[j] & 15 } else { nibbles[j - 16] >> 4 };
        let quant = i32::from(nibble) + ((bits >> j & 1) as i32) * 16 - bias;
        let value = quant as f32 * d;
        out.push(m.map_or(value, |m| value + m));
    }
}

fn q2_k(out: &mut Vec<f32>, block: &[u8]) {
    let (scales, mut q) = (&block[..16], &block[16..80]);
    let (d, min) = (half_at(block, 80), half_at(block, 82));
    let mut is = 0;
    for _ in 0..2 {
        let mut shift = 0;
        for _ in 0..4 {
            for lot in 0..2 {
                let sc = scales[is];
                is += 1;
                let (dl, ml) = (d * f32::from(sc & 15), min * f32::from(sc >> 4));
                for l in 0..16 {
                    out.push(dl * f32::from(q[l + 16 * lot] >> shift & 3) - ml);
                }
            }
            shift += 2;
        }
        q = &q[32..];
    }
}

fn q3_k(out: &mut Vec<f32>, block: &[u8]) {
    let (hm, mut q) = (&block[..32], &block[32..96]);
    let word = |i: usize| u32::from_le_bytes(block[96 + 4 * i..100 + 4 * i].try_into().unwrap());
    let (a, b, tmp) = (word(0), word(1), word(2));
    let (k1, k2) = (0x0303_0303u32, 0x0f0f_0f0fu32);
    let aux = [
        (a & k2) | ((tmp & k1) << 4),
        (b & k2) | (((tmp >> 2) & k1) << 4),
        ((a >> 4) & k2) | (((tmp >> 4) & k1) << 4),
        ((b >> 4) & k2) | (((tmp >> 6) & k1) << 4),
    ];
    let scales: Vec<u8> = aux.iter().flat_map(|word| word.to_le_bytes()).collect();
    let d_all = half_at(block, 108);
    let (mut is, mut m) = (0, 1u8);
    for _ in 0..2 {
        let mut shift = 0;
        for _ in 0..4 {
            for lot in 0..2 {
                let dl = d_all * (i32::from(scales[is]) - 32) as f32;
                is += 1;
                for l in 16 * lot..16 * lot + 16 {
                    let low = i32::from(q[l] >> shift & 3);
                    out.push(dl * (low - if hm[l] & m != 0 { 0 } else { 4 }) as f32);
                }
            }
            shift += 2;
            m <<= 1;
        }
        q = &q[32..];
    }
}

fn q45_k(out: &mut Vec<f32>, block: &[u8], five: bool) {
    let (d, min) = (half_at(block, 0), half_at(block, 2));
    let scales = &block[4..16];
    let scale_min = |j: usize| {
        if j < 4 {
            (scales[j] & 63, scales[j + 4] & 63)
        } else {
            ((scales[j + 4] & 15) | ((scales[j - 4] >> 6) << 4), (scales[j + 4] >> 4) | ((scales[j] >> 6) << 4))
        }
    };
    let (qh, ql) = if five { (&block[16..48], &block[48..]) } else { (&block[16..16], &block[16..]) };
    for j in 0..8 {
        let (sc, m) = scale_min(j);
        for l in 0..32 {
            let byte = ql[j / 2 * 32 + l];
            let mut quant = if j % 2 == 0 { byte & 15 } else { byte >> 4 };
            if five && qh[l] & (1 << j) != 0 {
                quant += 16;
            }
            out.push(d * f32::from(sc) * f32::from(quant) - min * f32::from(m));
        }
    }
}

fn q6_k(out: &mut Vec<f32>, block: &[u8]) {
    let d = half_at(block, 208);
    let start = out.len();
    out.resize(start + 256, 0.0);
    let y = &mut out[start..];
    for n in 0..2 {
        let (ql, qh, sc) = (&block[64 * n..], &block[128 + 32 * n..], &block[192 + 8 * n..]);
        for l in 0..32 {
            let is = l / 16;
            let q1 = i32::from((ql[l] & 15) | ((qh[l] & 3) << 4)) - 32;
            let q2 = i32::from((ql[l + 32] & 15) | (((qh[l] >> 2) & 3) << 4)) - 32;
            let q3 = i32::from((ql[l] >> 4) | (((qh[l] >> 4) & 3) << 4)) - 32;
            let q4 = i32::from((ql[l + 32] >> 4) | (((qh[l] >> 6) & 3) << 4)) - 32;
            for (k, q) in [q1, q2, q3, q4].into_iter().enumerate() {
                y[128 * n + 32 * k + l] = d * f32::from(sc[is + 2 * k] as i8) * q as f32;
            }
        }
    }
}

/// A random matrix: its packed bytes and its values.
pub struct Matrix {
    pub format: Format,
    pub rows: usize,
    pub cols: usize,
    pub raw: Vec<u8>,
    pub bytes: Vec<u8>,
    pub values: Vec<f32>,
}

impl Matrix {
    pub fn random(rng: &mut Rng, format: Format, rows: usize, cols: usize) -> Matrix {
        let raw = random_raw(rng, format, rows, cols);
        Matrix::new(format, rows, cols, raw)
    }

    pub fn new(format: Format, rows: usize, cols: usize, raw: Vec<u8>) -> Matrix {
        let mut bytes = vec![0xaa; packed_bytes(format, rows, cols).unwrap() as usize];
        pack(format, rows, cols, &raw, &mut bytes).unwrap();
        let row_bytes = format.row_bytes(cols).unwrap();
        let values = raw.chunks_exact(row_bytes).flat_map(|raw| reference_row(format, raw, cols)).collect();
        Matrix { format, rows, cols, raw, bytes, values }
    }

    pub fn packed(&self) -> Packed<'_> {
        Packed::new(self.format, self.rows, self.cols, &self.bytes).unwrap()
    }

    /// Exact products with `m` rows of activations, and for each the sum of magnitudes that its error scales with.
    pub fn reference(&self, x: &[f32], m: usize) -> Vec<(f64, f64)> {
        let mut out = Vec::new();
        for x in x.chunks_exact(self.cols).take(m) {
            for row in self.values.chunks_exact(self.cols) {
                let terms = row.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
                out.push(terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs())));
            }
        }
        out
    }
}

/// A format's smallest usual row: not a multiple of 64 where blocks allow it.
pub fn odd_cols(format: Format) -> usize {
    match format.block_elements() {
        1 => 77,
        32 => 32 * 5,
        block => block * 3,
    }
}

pub fn quantized(isa: Isa, x: &[f32], rows: usize, cols: usize) -> Vec<u8> {
    let threads = Threads::new(1).unwrap();
    let mut bytes = vec![0; QuantRows::bytes(rows, cols).unwrap()];
    quantize_rows(&threads, isa, x, rows, cols, &mut bytes).unwrap();
    bytes
}

pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}
