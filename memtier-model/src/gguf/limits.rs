//! Bounds on what a header may claim.

/// Bounds on what a header may claim, checked before anything of that size is read or allocated.
///
/// The defaults are far above every published model and far below what would hurt: a hostile file costs at most the
/// bytes it really has, up to `header_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of header (metadata and tensor table) that will be read.
    pub header_bytes: u64,
    /// Metadata entries.
    pub metadata_entries: u64,
    /// Tensors in one file.
    pub tensors: u64,
    /// Bytes of one key or tensor name.
    pub name_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { header_bytes: 256 << 20, metadata_entries: 1 << 16, tensors: 1 << 20, name_bytes: 1 << 16 }
    }
}

/// Dimensions of a tensor, at most: ggml's own bound.
pub(crate) const MAX_DIMENSIONS: usize = 4;
