//! The ggml element types and their block geometry.

use std::fmt;

/// An element type of a ggml tensor. A row is stored as whole blocks of [`block_elements`](Self::block_elements)
/// elements, each taking [`block_bytes`](Self::block_bytes) bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types, reason = "these are ggml's own names, which users read in file names and logs")]
#[allow(missing_docs, reason = "each variant is named after the ggml type it stands for")]
#[non_exhaustive]
pub enum TensorType {
    F32,
    F16,
    BF16,
    F64,
    I8,
    I16,
    I32,
    I64,
    Q1_0,
    Q2_0,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ1_S,
    IQ1_M,
    IQ2_XXS,
    IQ2_XS,
    IQ2_S,
    IQ3_XXS,
    IQ3_S,
    IQ4_NL,
    IQ4_XS,
    TQ1_0,
    TQ2_0,
    MXFP4,
    NVFP4,
}

/// One row of the table below: type, id in a file, name, elements a block, bytes a block.
type Row = (TensorType, u32, &'static str, u32, u32);

/// In the order of the enum, so that a type indexes its own row.
const TABLE: [Row; 35] = {
    use TensorType::*;
    [
        (F32, 0, "F32", 1, 4),
        (F16, 1, "F16", 1, 2),
        (BF16, 30, "BF16", 1, 2),
        (F64, 28, "F64", 1, 8),
        (I8, 24, "I8", 1, 1),
        (I16, 25, "I16", 1, 2),
        (I32, 26, "I32", 1, 4),
        (I64, 27, "I64", 1, 8),
        (Q1_0, 41, "Q1_0", 128, 18),
        (Q2_0, 42, "Q2_0", 64, 18),
        (Q4_0, 2, "Q4_0", 32, 18),
        (Q4_1, 3, "Q4_1", 32, 20),
        (Q5_0, 6, "Q5_0", 32, 22),
        (Q5_1, 7, "Q5_1", 32, 24),
        (Q8_0, 8, "Q8_0", 32, 34),
        // Scale and sum are halves since 2024 (they were floats, 40 bytes); it is an activation type, not a file's.
        (Q8_1, 9, "Q8_1", 32, 36),
        (Q2_K, 10, "Q2_K", 256, 84),
        (Q3_K, 11, "Q3_K", 256, 110),
        (Q4_K, 12, "Q4_K", 256, 144),
        (Q5_K, 13, "Q5_K", 256, 176),
        (Q6_K, 14, "Q6_K", 256, 210),
        (Q8_K, 15, "Q8_K", 256, 292),
        (IQ1_S, 19, "IQ1_S", 256, 50),
        (IQ1_M, 29, "IQ1_M", 256, 56),
        (IQ2_XXS, 16, "IQ2_XXS", 256, 66),
        (IQ2_XS, 17, "IQ2_XS", 256, 74),
        (IQ2_S, 22, "IQ2_S", 256, 82),
        (IQ3_XXS, 18, "IQ3_XXS", 256, 98),
        (IQ3_S, 21, "IQ3_S", 256, 110),
        (IQ4_NL, 20, "IQ4_NL", 32, 18),
        (IQ4_XS, 23, "IQ4_XS", 256, 136),
        (TQ1_0, 34, "TQ1_0", 256, 54),
        (TQ2_0, 35, "TQ2_0", 256, 66),
        (MXFP4, 39, "MXFP4", 32, 17),
        (NVFP4, 40, "NVFP4", 64, 36),
    ]
};

/// Ids that ggml once used and gave up: files with them exist, nothing reads them any more.
const REMOVED: [(u32, &str); 8] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl TensorType {
    /// Every type, in the order of the enum.
    pub fn all() -> impl Iterator<Item = TensorType> {
        TABLE.iter().map(|row| row.0)
    }

    /// The type with this id in a GGUF file, if the id is one of today's.
    pub fn from_id(id: u32) -> Option<TensorType> {
        TABLE.iter().find(|row| row.1 == id).map(|row| row.0)
    }

    /// The name of a type that ggml has dropped, for a better message than "unknown".
    pub(crate) fn removed_name(id: u32) -> Option<&'static str> {
        REMOVED.iter().find(|row| row.0 == id).map(|row| row.1)
    }

    const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The id that stands for the type in a GGUF file.
    pub const fn id(self) -> u32 {
        self.row().1
    }

    /// ggml's name of the type, for example `Q4_K`.
    pub const fn name(self) -> &'static str {
        self.row().2
    }

    /// Elements in one block; 1 for plain numbers.
    pub const fn block_elements(self) -> u64 {
        self.row().3 as u64
    }

    /// Bytes that one block takes.
    pub const fn block_bytes(self) -> u64 {
        self.row().4 as u64
    }

    /// Whether the type stores blocks rather than plain numbers.
    pub const fn is_quantised(self) -> bool {
        self.block_elements() > 1
    }

    /// Bytes of a row of `elements`, or `None` when they are no whole number of blocks or the size overflows.
    ///
    /// ```
    /// use memtier_model::TensorType;
    /// assert_eq!(TensorType::Q4_K.row_bytes(4096), Some(4096 / 256 * 144));
    /// assert_eq!(TensorType::Q4_K.row_bytes(100), None);
    /// ```
    pub const fn row_bytes(self, elements: u64) -> Option<u64> {
        if !elements.is_multiple_of(self.block_elements()) {
            return None;
        }
        (elements / self.block_elements()).checked_mul(self.block_bytes())
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_indexes_its_own_row_and_ids_are_unique() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, index, "{}", row.2);
            assert_eq!(format!("{:?}", row.0), row.2);
            assert_eq!(TensorType::from_id(row.1), Some(row.0));
            assert_eq!(TABLE.iter().filter(|other| other.1 == row.1).count(), 1, "{}", row.2);
            assert_eq!(TensorType::removed_name(row.1), None);
        }
    }

    #[test]
    fn every_id_up_to_the_last_is_known_or_known_to_be_removed() {
        let last = TABLE.iter().map(|row| row.1).max().unwrap_or(0);
        for id in 0..=last {
            assert!(TensorType::from_id(id).is_some() || TensorType::removed_name(id).is_some(), "{id}");
        }
        assert_eq!(TensorType::from_id(last + 1), None);
    }
}
