//! Weight matrices in the form that the matmuls read.
//!
//! Sixteen rows make a group, so that a 512-bit register holds one 32-bit lane for each row. A group is contiguous and read
//! from one end to the other. Nothing is lost: a packed row dequantises to the same
//! values as the raw row, and the size is that of the file plus a few percent (unpacked 6-bit scales, padding to 16 rows
//! and 64 bytes).

mod layout;
mod pack;
mod row;

pub(crate) use layout::{Layout, ScaleKind, high_place, low_place};
pub use pack::{pack, pack_groups, pack_parallel};
pub use row::dequantize_row;

use crate::error::{KernelError, expect};
use crate::format::Format;

/// Rows of a group.
pub const GROUP_ROWS: usize = 16;

/// Groups of a matrix of `rows` rows: the last one may be padded.
pub const fn groups(rows: usize) -> usize {
    rows.div_ceil(GROUP_ROWS)
}

/// Bytes of one packed group of rows of `cols` columns, or `None` where blocks do not divide the row or the size
/// overflows. Always a multiple of 64.
pub fn group_bytes(format: Format, cols: usize) -> Option<usize> {
    if cols == 0 || !cols.is_multiple_of(format.block_elements()) {
        return None;
    }
    Layout::of(format).group_bytes(cols)
}

/// Bytes of a packed matrix of `rows` x `cols`, exactly, or `None` where blocks do not divide the row or the size
/// overflows.
pub fn packed_bytes(format: Format, rows: usize, cols: usize) -> Option<u64> {
    let group = u64::try_from(group_bytes(format, cols)?).ok()?;
    group.checked_mul(u64::try_from(groups(rows)).ok()?)
}

/// A packed matrix: `rows` x `cols` weights of a linear layer (`rows` outputs, `cols` inputs), or of an embedding
/// (`rows` tokens).
///
/// Any address will do; kernels are fastest when it is a multiple of 64.
#[derive(Debug, Clone, Copy)]
pub struct Packed<'a> {
    format: Format,
    rows: usize,
    cols: usize,
    group_bytes: usize,
    bytes: &'a [u8],
}

impl<'a> Packed<'a> {
    /// Interprets bytes that [`pack`] or its relatives have written for the same format and shape.
    ///
    /// # Errors
    ///
    /// [`KernelError`] where blocks do not divide `cols` or the length is not [`packed_bytes`].
    pub fn new(format: Format, rows: usize, cols: usize, bytes: &'a [u8]) -> Result<Packed<'a>, KernelError> {
        let group_bytes = checked_group_bytes(format, cols)?;
        let all = groups(rows).checked_mul(group_bytes).ok_or(KernelError::Overflow { what: "packed bytes" })?;
        expect("packed bytes", all, bytes.len())?;
        Ok(Packed { format, rows, cols, group_bytes, bytes })
    }

    /// The weights' format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Outputs of the layer.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs of the layer.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The packed bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes of one group of rows.
    pub(crate) fn group(&self, group: usize) -> &'a [u8] {
        &self.bytes[group * self.group_bytes..][..self.group_bytes]
    }
}

pub(crate) fn checked_group_bytes(format: Format, cols: usize) -> Result<usize, KernelError> {
    format.checked_row_bytes(cols)?;
    Layout::of(format).group_bytes(cols).ok_or(KernelError::Overflow { what: "bytes of a packed group" })
}
