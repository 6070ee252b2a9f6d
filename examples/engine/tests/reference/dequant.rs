//! Dequantisation, block by block, straight from the formats' definitions.

use memtier_model::TensorType;

use super::half::to_f32;

/// The values of a tensor's bytes.
pub fn dequantise(tensor_type: TensorType, bytes: &[u8]) -> Vec<f32> {
    let block: fn(&[u8], &mut Vec<f32>) = match tensor_type {
        TensorType::F32 => |b, out| out.push(f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        TensorType::F16 => |b, out| out.push(half(b, 0)),
        TensorType::BF16 => |b, out| out.push(f32::from_le_bytes([0, 0, b[0], b[1]])),
        TensorType::Q4_0 => q4_0,
        TensorType::Q4_1 => q4_1,
        TensorType::Q5_0 => q5_0,
        TensorType::Q5_1 => q5_1,
        TensorType::Q8_0 => q8_0,
        TensorType::Q2_K => q2_k,
        TensorType::Q3_K => q3_k,
        TensorType::Q4_K => q4_k,
        TensorType::Q5_K => q5_k,
        TensorType::Q6_K => q6_k,
        other => panic!("{other} is not part of the reference"),
    };
    let block_bytes = tensor_type.block_bytes() as usize;
    assert_eq!(bytes.len() % block_bytes, 0);
    let mut out = Vec::with_capacity(bytes.len() / block_bytes * tensor_type.block_elements() as usize);
    bytes.chunks(block_bytes).for_each(|bytes| block(bytes, &mut out));
    out
}

/// The half at a byte offset.
fn half(bytes: &[u8], at: usize) -> f32 {
    to_f32(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn bit(bytes: &[u8], index: usize) -> u8 {
    bytes[index / 8] >> (index % 8) & 1
}

/// Element `i` of 32 packed as nibbles: the low ones are the first half, the high ones the second.
fn nibble(packed: &[u8], i: usize) -> u8 {
    if i < 16 { packed[i] & 15 } else { packed[i - 16] >> 4 }
}

// 32 elements: scale, nibbles; offset by 8.
fn q4_0(b: &[u8], out: &mut Vec<f32>) {
    out.extend((0..32).map(|i| half(b, 0) * (f32::from(nibble(&b[2..], i)) - 8.0)));
}

// 32 elements: scale, minimum, nibbles.
fn q4_1(b: &[u8], out: &mut Vec<f32>) {
    out.extend((0..32).map(|i| half(b, 0) * f32::from(nibble(&b[4..], i)) + half(b, 2)));
}

// 32 elements: scale, fifth bits, nibbles; offset by 16.
fn q5_0(b: &[u8], out: &mut Vec<f32>) {
    let q = |i| f32::from(nibble(&b[6..], i) | bit(&b[2..6], i) << 4);
    out.extend((0..32).map(|i| half(b, 0) * (q(i) - 16.0)));
}

// 32 elements: scale, minimum, fifth bits, nibbles.
fn q5_1(b: &[u8], out: &mut Vec<f32>) {
    let q = |i| f32::from(nibble(&b[8..], i) | bit(&b[4..8], i) << 4);
    out.extend((0..32).map(|i| half(b, 0) * q(i) + half(b, 2)));
}

// 32 elements: scale, signed bytes.
fn q8_0(b: &[u8], out: &mut Vec<f32>) {
    out.extend((0..32).map(|i| half(b, 0) * f32::from(b[2 + i] as i8)));
}

// 256 elements in 16 groups of 16: scale and minimum of each group (4 bits each), 2 bits an element, the two of them.
fn q2_k(b: &[u8], out: &mut Vec<f32>) {
    let (scales, packed) = (&b[0..16], &b[16..80]);
    let (d, min) = (half(b, 80), half(b, 82));
    out.extend((0..256).map(|i| {
        let scale = scales[i / 16];
        // Each half of the block has 32 bytes, whose four pairs of bits are four runs of 32 elements.
        let q = packed[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
        d * f32::from(scale & 15) * f32::from(q) - min * f32::from(scale >> 4)
    }));
}

// 256 elements in 16 groups of 16: third bits, 2 bits an element, 6-bit scales offset by 32, the scale of those.
fn q3_k(b: &[u8], out: &mut Vec<f32>) {
    let (high, packed, scales, d) = (&b[0..32], &b[32..96], &b[96..108], half(b, 108));
    out.extend((0..256).map(|i| {
        let group = i / 16;
        let low = scales[group % 8] >> (4 * (group / 8)) & 15;
        let scale = low | (scales[8 + group % 4] >> (2 * (group / 4)) & 3) << 4;
        let q = packed[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
        // A third bit that is set spares the element 4.
        let third = high[i % 32] >> (i / 32) & 1;
        d * (f32::from(scale) - 32.0) * (f32::from(q | third << 2) - 4.0)
    }));
}

/// The 6-bit scale and minimum of group `j` of 8, as Q4_K and Q5_K pack them into 12 bytes.
fn scale_and_min(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        let low = packed[j + 4];
        (low & 15 | packed[j - 4] >> 6 << 4, low >> 4 | packed[j] >> 6 << 4)
    };
    (f32::from(scale), f32::from(min))
}

/// Element `i` of 256 packed as nibbles in runs of 64: the low ones are the first 32, the high ones the second.
fn nibble_of_64(packed: &[u8], i: usize) -> u8 {
    packed[i / 64 * 32 + i % 32] >> (4 * (i % 64 / 32)) & 15
}

// 256 elements in 8 groups of 32: scale and minimum of the block, those of the groups, nibbles.
fn q4_k(b: &[u8], out: &mut Vec<f32>) {
    let (d, min) = (half(b, 0), half(b, 2));
    out.extend((0..256).map(|i| {
        let (group_scale, group_min) = scale_and_min(&b[4..16], i / 32);
        d * group_scale * f32::from(nibble_of_64(&b[16..], i)) - min * group_min
    }));
}

// As Q4_K, with fifth bits between the groups' scales and the nibbles: bit `g` of 32 bytes is group `g`'s.
fn q5_k(b: &[u8], out: &mut Vec<f32>) {
    let (d, min) = (half(b, 0), half(b, 2));
    out.extend((0..256).map(|i| {
        let (group_scale, group_min) = scale_and_min(&b[4..16], i / 32);
        let fifth = b[16 + i % 32] >> (i / 32) & 1;
        let q = nibble_of_64(&b[48..], i) | fifth << 4;
        d * group_scale * f32::from(q) - min * group_min
    }));
}

// 256 elements in 16 groups of 16: low nibbles, high pairs of bits, signed scales of the groups, the block's scale.
fn q6_k(b: &[u8], out: &mut Vec<f32>) {
    let (low, high, scales, d) = (&b[0..128], &b[128..192], &b[192..208], half(b, 208));
    out.extend((0..256).map(|i| {
        let (part, run, lane) = (i / 128, i % 128 / 32, i % 32);
        // Of 64 bytes for 128 elements, the low nibbles are the first two runs of 32 and the high ones the others.
        let nibble = low[part * 64 + run % 2 * 32 + lane] >> (4 * (run / 2)) & 15;
        let pair = high[part * 32 + lane] >> (2 * run) & 3;
        let q = f32::from(nibble | pair << 4) - 32.0;
        d * f32::from(scales[i / 16] as i8) * q
    }));
}
