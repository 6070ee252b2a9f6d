//! Weight formats of GGUF files.

use crate::error::{KernelError, multiple};

/// How a tensor's elements are encoded in a GGUF file. Blocks never cross a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[allow(non_camel_case_types, reason = "the names that GGUF files and their users know")]
pub enum Format {
    /// 32-bit floats.
    F32,
    /// IEEE half floats.
    F16,
    /// Brain floats.
    BF16,
    /// 4 bits, an f16 scale for 32 elements, centred.
    Q4_0,
    /// 4 bits, an f16 scale and minimum for 32 elements.
    Q4_1,
    /// 5 bits, an f16 scale for 32 elements, centred.
    Q5_0,
    /// 5 bits, an f16 scale and minimum for 32 elements.
    Q5_1,
    /// 8 bits, an f16 scale for 32 elements.
    Q8_0,
    /// 2 bits, 4-bit scales and minimums for 16 elements, f16 scales of these for 256.
    Q2_K,
    /// 3 bits, 6-bit scales for 16 elements, an f16 scale of these for 256, centred.
    Q3_K,
    /// 4 bits, 6-bit scales and minimums for 32 elements, f16 scales of these for 256.
    Q4_K,
    /// 5 bits, 6-bit scales and minimums for 32 elements, f16 scales of these for 256.
    Q5_K,
    /// 6 bits, 8-bit scales for 16 elements, an f16 scale of these for 256, centred.
    Q6_K,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 13] = [
        Format::F32,
        Format::F16,
        Format::BF16,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q2_K,
        Format::Q3_K,
        Format::Q4_K,
        Format::Q5_K,
        Format::Q6_K,
    ];

    /// The format behind a tensor type number of a GGUF file, or `None` for one that these kernels lack.
    pub const fn from_ggml_type(id: u32) -> Option<Format> {
        Some(match id {
            0 => Format::F32,
            1 => Format::F16,
            2 => Format::Q4_0,
            3 => Format::Q4_1,
            6 => Format::Q5_0,
            7 => Format::Q5_1,
            8 => Format::Q8_0,
            10 => Format::Q2_K,
            11 => Format::Q3_K,
            12 => Format::Q4_K,
            13 => Format::Q5_K,
            14 => Format::Q6_K,
            30 => Format::BF16,
            _ => return None,
        })
    }

    /// The name in GGUF tools.
    pub const fn name(self) -> &'static str {
        match self {
            Format::F32 => "F32",
            Format::F16 => "F16",
            Format::BF16 => "BF16",
            Format::Q4_0 => "Q4_0",
            Format::Q4_1 => "Q4_1",
            Format::Q5_0 => "Q5_0",
            Format::Q5_1 => "Q5_1",
            Format::Q8_0 => "Q8_0",
            Format::Q2_K => "Q2_K",
            Format::Q3_K => "Q3_K",
            Format::Q4_K => "Q4_K",
            Format::Q5_K => "Q5_K",
            Format::Q6_K => "Q6_K",
        }
    }

    /// Elements in a block.
    pub const fn block_elements(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::BF16 => 1,
            Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 | Format::Q8_0 => 32,
            Format::Q2_K | Format::Q3_K | Format::Q4_K | Format::Q5_K | Format::Q6_K => 256,
        }
    }

    /// Bytes of a block in the file.
    pub const fn block_bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::BF16 => 2,
            Format::Q4_0 => 18,
            Format::Q4_1 => 20,
            Format::Q5_0 => 22,
            Format::Q5_1 => 24,
            Format::Q8_0 => 34,
            Format::Q2_K => 84,
            Format::Q3_K => 110,
            Format::Q4_K => 144,
            Format::Q5_K => 176,
            Format::Q6_K => 210,
        }
    }

    /// Bytes of a row of `cols` elements in the file, or `None` where blocks do not divide it or the size overflows.
    pub const fn row_bytes(self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.block_elements()) {
            return None;
        }
        (cols / self.block_elements()).checked_mul(self.block_bytes())
    }

    /// Whether the elements are plain floats: a matmul over them takes `f32` rows, every other format quantised rows.
    pub const fn is_float(self) -> bool {
        matches!(self, Format::F32 | Format::F16 | Format::BF16)
    }

    /// Checks a row length and counts its bytes in the file.
    pub(crate) fn checked_row_bytes(self, cols: usize) -> Result<usize, KernelError> {
        multiple("columns of a weight row", self.block_elements(), cols)?;
        self.row_bytes(cols).ok_or(KernelError::Overflow { what: "bytes of a weight row" })
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_bytes_wants_whole_blocks() {
        assert_eq!(Format::Q4_1.row_bytes(576), Some(18 * 20));
        assert_eq!(Format::Q4_K.row_bytes(640), None);
        assert_eq!(Format::F32.row_bytes(usize::MAX), None);
    }

    #[test]
    fn type_numbers_are_those_of_gguf() {
        let known = (0..64).filter_map(Format::from_ggml_type).count();
        assert_eq!(known, Format::ALL.len());
        assert_eq!(Format::from_ggml_type(4), None);
    }
}
