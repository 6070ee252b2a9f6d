//! Raw blocks of GGUF files taken apart: unsigned quants, scales and minimums as integers.
//!
//! This is the only place that knows how the file packs bits. An element's value is
//! `d * scale * (quant - bias) - dmin * min`, where formats without a part leave it out; every step is exact in `f32`
//! except the last addition, so the value does not depend on how the expression is grouped.

use crate::format::Format;
use crate::half::f16_to_f32;

/// One raw block, taken apart. Formats of 32 elements use the first 32 quants only.
pub(crate) struct Block {
    /// Unsigned quants; subtract [`bias`] for centred formats.
    pub(crate) quants: [u8; 256],
    /// Scale of each sub-block, where the format has them; as a signed byte.
    pub(crate) scales: [i8; 16],
    /// Minimum of each sub-block, where the format has them.
    pub(crate) mins: [u8; 16],
    /// Bits of the block's f16 scale.
    pub(crate) d: u16,
    /// Bits of the block's f16 minimum (Q4_1, Q5_1: added) or scale of minimums (K formats: subtracted).
    pub(crate) m: u16,
}

/// What to subtract from an unsigned quant.
pub(crate) const fn bias(format: Format) -> i32 {
    match format {
        Format::Q4_0 => 8,
        Format::Q5_0 => 16,
        Format::Q8_0 => 128,
        Format::Q3_K => 4,
        Format::Q6_K => 32,
        _ => 0,
    }
}

/// Elements that share a scale in a K format.
pub(crate) const fn sub_elements(format: Format) -> usize {
    match format {
        Format::Q2_K | Format::Q3_K | Format::Q6_K => 16,
        _ => 32,
    }
}

impl Block {
    pub(crate) const fn new() -> Block {
        Block { quants: [0; 256], scales: [0; 16], mins: [0; 16], d: 0, m: 0 }
    }

    /// Takes `raw`, exactly one block of a quantised `format`, apart.
    pub(crate) fn read(&mut self, format: Format, raw: &[u8]) {
        debug_assert_eq!(raw.len(), format.block_bytes());
        match format {
            Format::Q4_0 => {
                self.d = half(raw, 0);
                self.nibbles(&raw[2..18]);
            }
            Format::Q4_1 => {
                (self.d, self.m) = (half(raw, 0), half(raw, 2));
                self.nibbles(&raw[4..20]);
            }
            Format::Q5_0 => {
                self.d = half(raw, 0);
                self.nibbles(&raw[6..22]);
                self.fifth_bits(&raw[2..6]);
            }
            Format::Q5_1 => {
                (self.d, self.m) = (half(raw, 0), half(raw, 2));
                self.nibbles(&raw[8..24]);
                self.fifth_bits(&raw[4..8]);
            }
            Format::Q8_0 => {
                self.d = half(raw, 0);
                for (quant, byte) in self.quants.iter_mut().zip(&raw[2..34]) {
                    *quant = byte ^ 0x80;
                }
            }
            Format::Q2_K => self.read_q2_k(raw),
            Format::Q3_K => self.read_q3_k(raw),
            Format::Q4_K => {
                self.six_bit_scales(&raw[4..16]);
                self.nibbles_k(&raw[16..144]);
                (self.d, self.m) = (half(raw, 0), half(raw, 2));
            }
            Format::Q5_K => {
                self.six_bit_scales(&raw[4..16]);
                self.nibbles_k(&raw[48..176]);
                for (index, quant) in self.quants.iter_mut().enumerate() {
                    *quant |= (raw[16 + index % 32] >> (index / 32) & 1) << 4;
                }
                (self.d, self.m) = (half(raw, 0), half(raw, 2));
            }
            Format::Q6_K => self.read_q6_k(raw),
            Format::F32 | Format::F16 | Format::BF16 => debug_assert!(false, "floats have no blocks"),
        }
    }

    /// 32 quants: low nibbles first, then high ones.
    fn nibbles(&mut self, raw: &[u8]) {
        let (low, high) = self.quants[..32].split_at_mut(16);
        for ((byte, low), high) in raw.iter().zip(low).zip(high) {
            (*low, *high) = (byte & 15, byte >> 4);
        }
    }

    fn fifth_bits(&mut self, raw: &[u8]) {
        let bits = u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
        for (index, quant) in self.quants[..32].iter_mut().enumerate() {
            *quant |= ((bits >> index & 1) as u8) << 4;
        }
    }

    /// 256 quants: each 32 bytes hold 32 low nibbles, then 32 high ones.
    fn nibbles_k(&mut self, raw: &[u8]) {
        for (quants, bytes) in self.quants.chunks_exact_mut(64).zip(raw.chunks_exact(32)) {
            let (low, high) = quants.split_at_mut(32);
            for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
                (*low, *high) = (byte & 15, byte >> 4);
            }
        }
    }

    /// Eight 6-bit scales and minimums: four of each in the low bits of 8 bytes, the rest in 4 bytes of nibbles and the
    /// top bits of the first 8.
    fn six_bit_scales(&mut self, raw: &[u8]) {
        for j in 0..4 {
            self.scales[j] = (raw[j] & 63) as i8;
            self.mins[j] = raw[j + 4] & 63;
            self.scales[j + 4] = (raw[j + 8] & 15 | raw[j] >> 6 << 4) as i8;
            self.mins[j + 4] = raw[j + 8] >> 4 | raw[j + 4] >> 6 << 4;
        }
    }

    fn read_q2_k(&mut self, raw: &[u8]) {
        for (index, byte) in raw[..16].iter().enumerate() {
            self.scales[index] = (byte & 15) as i8;
            self.mins[index] = byte >> 4;
        }
        self.two_bits(&raw[16..80]);
        (self.d, self.m) = (half(raw, 80), half(raw, 82));
    }

    fn read_q3_k(&mut self, raw: &[u8]) {
        self.two_bits(&raw[32..96]);
        for (index, quant) in self.quants.iter_mut().enumerate() {
            *quant |= (raw[index % 32] >> (index / 32) & 1) << 2;
        }
        let packed = &raw[96..108];
        for (index, scale) in self.scales.iter_mut().enumerate() {
            let low = packed[index % 8] >> (index / 8 * 4) & 15;
            let high = packed[8 + index % 4] >> (index / 4 * 2) & 3;
            *scale = (low | high << 4) as i8 - 32;
        }
        self.d = half(raw, 108);
    }

    /// 256 quants of 2 bits: each 32 bytes hold 4 x 32 of them, lowest bits first.
    fn two_bits(&mut self, raw: &[u8]) {
        for (index, quant) in self.quants.iter_mut().enumerate() {
            *quant = raw[index / 128 * 32 + index % 32] >> (index % 128 / 32 * 2) & 3;
        }
    }

    fn read_q6_k(&mut self, raw: &[u8]) {
        let (low, high) = (&raw[..128], &raw[128..192]);
        for (half, quants) in self.quants.chunks_exact_mut(128).enumerate() {
            let (low, high) = (&low[half * 64..][..64], &high[half * 32..][..32]);
            for l in 0..32 {
                quants[l] = low[l] & 15 | (high[l] & 3) << 4;
                quants[l + 32] = low[l + 32] & 15 | (high[l] >> 2 & 3) << 4;
                quants[l + 64] = low[l] >> 4 | (high[l] >> 4 & 3) << 4;
                quants[l + 96] = low[l + 32] >> 4 | high[l] >> 6 << 4;
            }
        }
        for (scale, byte) in self.scales.iter_mut().zip(&raw[192..208]) {
            *scale = *byte as i8;
        }
        self.d = self::half(raw, 208);
    }

    /// The elements' values; `out` is as long as a block of `format`.
    pub(crate) fn values(&self, format: Format, out: &mut [f32]) {
        let (d, m) = (f16_to_f32(self.d), f16_to_f32(self.m));
        let bias = bias(format);
        match format {
            Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => {
                for (out, quant) in out.iter_mut().zip(&self.quants) {
                    *out = (i32::from(*quant) - bias) as f32 * d;
                }
            }
            Format::Q4_1 | Format::Q5_1 => {
                for (out, quant) in out.iter_mut().zip(&self.quants) {
                    *out = f32::from(*quant) * d + m;
                }
            }
            _ => {
                let sub = sub_elements(format);
                for (index, (out, quants)) in out.chunks_exact_mut(sub).zip(self.quants.chunks_exact(sub)).enumerate() {
                    let scale = d * f32::from(self.scales[index]);
                    let min = m * f32::from(self.mins[index]);
                    let has_min = !matches!(format, Format::Q3_K | Format::Q6_K);
                    for (out, quant) in out.iter_mut().zip(quants) {
                        let value = scale * (i32::from(*quant) - bias) as f32;
                        *out = if has_min { value - min } else { value };
                    }
                }
            }
        }
    }
}

fn half(raw: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([raw[at], raw[at + 1]])
}
