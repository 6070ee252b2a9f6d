//! What the cells of a cache are: element types, and where their rows lie in a block.
//!
//! A block of a layer holds, head after head, the keys, then, head after head, the values. The rows of one head are its
//! elements, then their scales:
//!
//! ```text
//! keys    [dim][token] elements      [group][token] f16 scales
//! values  [token][dim] elements      [token][group] f16 scales
//! ```
//!
//! Sixteen tokens' keys of one dimension are read at once, and so are sixteen dimensions of one token's value. 4-bit elements
//! share bytes as ggml has them: of a group of 32, dimension j in the low and j + 16 in the high half.
//!
//! NVFP4 has two bytes where others have an f16, the ue4m3 of both halves of a group of 32, the first one lower; behind the last group
//! come the lower and the upper half of the row's f32.

/// The element type of a key/value cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// IEEE binary16.
    F16,
    /// bfloat16; read as f16, beyond whose largest it is infinite.
    Bf16,
    /// OCP E4M3, and an f16 scale for each head's row of a token: 2^8 / 448 of its largest element.
    Fp8,
    /// Eight bits, and an f16 scale for 32 dimensions of a row: 1 / 127 of the largest (ggml's Q8_0).
    Q8_0,
    /// NVFP4: e2m1, for 16 dimensions a ue4m3, 1 / 6 of their largest, and for each head's row of a token an f32, 1 / (6 * 448) of its
    /// largest. What the CUDA kernels write, in other places.
    Nvfp4,
    /// Four bits, and an f16 scale for 32 dimensions of a row: -1 / 8 of the largest, with its sign (ggml's Q4_0).
    Q4_0,
    /// The same of rotated rows, with the scale that rounds off least: a Walsh-Hadamard transform spreads what is large in one dimension
    /// over all of them.
    Q4_0Rotated,
}

/// Dimensions that share a scale.
pub(super) const GROUP: usize = 32;
/// The largest head that other formats than f16 are unpacked for, chunk by chunk.
pub(super) const MAX_DIM: usize = 256;

impl KvFormat {
    /// All of them, largest first.
    pub const ALL: [KvFormat; 7] = [
        KvFormat::F16,
        KvFormat::Bf16,
        KvFormat::Q8_0,
        KvFormat::Fp8,
        KvFormat::Nvfp4,
        KvFormat::Q4_0,
        KvFormat::Q4_0Rotated,
    ];

    /// What a head's dimension must be a multiple of.
    pub const fn granule(self) -> usize {
        match self {
            KvFormat::F16 | KvFormat::Bf16 | KvFormat::Fp8 => 16,
            KvFormat::Q8_0 | KvFormat::Nvfp4 | KvFormat::Q4_0 | KvFormat::Q4_0Rotated => GROUP,
        }
    }

    /// The largest dimension of a head.
    pub const fn most(self) -> usize {
        match self {
            KvFormat::F16 => usize::MAX,
            _ => MAX_DIM,
        }
    }

    /// Whether rows are rotated before they are rounded.
    pub(super) const fn rotates(self) -> bool {
        matches!(self, KvFormat::Q4_0Rotated)
    }

    /// Bits of an element.
    pub(super) const fn bits(self) -> usize {
        match self {
            KvFormat::F16 | KvFormat::Bf16 => 16,
            KvFormat::Fp8 | KvFormat::Q8_0 => 8,
            KvFormat::Nvfp4 | KvFormat::Q4_0 | KvFormat::Q4_0Rotated => 4,
        }
    }

    /// Bits from one token's key to the next: those of two dimensions where they share a byte.
    pub(super) const fn key_step(self) -> usize {
        match self {
            KvFormat::Nvfp4 | KvFormat::Q4_0 | KvFormat::Q4_0Rotated => 8,
            _ => self.bits(),
        }
    }

    /// Units of 16 bits that the scales of one head's row take.
    pub(super) const fn scales(self, head_dim: usize) -> usize {
        match self {
            KvFormat::F16 | KvFormat::Bf16 => 0,
            KvFormat::Fp8 => 1,
            KvFormat::Q8_0 | KvFormat::Q4_0 | KvFormat::Q4_0Rotated => head_dim / GROUP,
            KvFormat::Nvfp4 => head_dim / GROUP + 2,
        }
    }

    /// Bytes of one head's row of one token, or `None` on overflow. A row of 64: f16 128, q8_0 68, fp8 66, nvfp4 40, q4_0 36.
    pub const fn row_bytes(self, head_dim: usize) -> Option<usize> {
        let Some(bits) = head_dim.checked_mul(self.bits()) else { return None };
        (bits / 8).checked_add(2 * self.scales(head_dim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_sizes_of_the_formats() {
        let rows = KvFormat::ALL.map(|format| format.row_bytes(64).unwrap());
        assert_eq!(rows, [128, 128, 68, 66, 40, 36, 36]);
        assert_eq!(KvFormat::F16.row_bytes(usize::MAX), None);
    }
}
