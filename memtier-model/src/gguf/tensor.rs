//! One tensor of the table.

use std::fmt;

use super::limits::MAX_DIMENSIONS;
use crate::tensor_type::TensorType;

/// The dimensions of a tensor in ggml's order: the first is the length of a row, whose elements are adjacent. A
/// PyTorch weight `[out, in]` is `[in, out]` here.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [u64; MAX_DIMENSIONS],
    len: u8,
}

impl Shape {
    /// A shape, or `None` when there are more than four dimensions.
    pub fn new(dims: &[u64]) -> Option<Shape> {
        let mut all = [1; MAX_DIMENSIONS];
        all.get_mut(..dims.len())?.copy_from_slice(dims);
        Some(Shape { dims: all, len: dims.len() as u8 })
    }

    /// The dimensions as the file states them.
    pub fn dims(&self) -> &[u64] {
        &self.dims[..usize::from(self.len)]
    }

    /// Elements of one row, the innermost dimension.
    pub fn row(&self) -> u64 {
        self.dims[0]
    }

    /// The number of rows, the product of all dimensions but the first; `None` on overflow.
    pub fn rows(&self) -> Option<u64> {
        self.dims[1..].iter().try_fold(1u64, |product, &dim| product.checked_mul(dim))
    }

    /// The number of elements; `None` on overflow.
    pub fn elements(&self) -> Option<u64> {
        self.rows()?.checked_mul(self.row())
    }

    /// Whether the dimensions are these, where missing ones count as 1 (`[n]` is `[n, 1]`).
    pub fn is(&self, dims: &[u64]) -> bool {
        Shape::new(dims).is_some_and(|other| other.dims == self.dims)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.dims(), f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.dims(), f)
    }
}

/// A tensor as the table describes it. Its bytes are within the file: the reader has checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The name, for example `blk.0.attn_q.weight`.
    pub name: String,
    /// The dimensions, in ggml's order.
    pub shape: Shape,
    /// The element type.
    pub tensor_type: TensorType,
    /// Which file of a split model holds it; 0 otherwise.
    pub part: usize,
    /// Where its data begins, in bytes from the beginning of that file.
    pub offset: u64,
    /// Bytes of its data.
    pub byte_len: u64,
}

impl TensorInfo {
    /// Bytes of one row.
    pub fn row_bytes(&self) -> u64 {
        // Whole blocks a row are a condition of the reader.
        self.tensor_type.row_bytes(self.shape.row()).unwrap_or(0)
    }
}
