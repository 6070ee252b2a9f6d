//! The one error type of the crate.

use std::fmt;

/// Why a kernel refused its arguments. Nothing was written when one of these comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelError {
    /// A slice or a dimension has the wrong size.
    Shape {
        /// The argument, in words.
        what: &'static str,
        /// What the other arguments imply, in elements of that argument (bytes for byte slices).
        expected: u64,
        /// What was given.
        found: u64,
    },
    /// A dimension is not a multiple of what the format or the kernel works in.
    Multiple {
        /// The dimension, in words.
        what: &'static str,
        /// The unit, in elements.
        of: u64,
        /// What was given, in elements.
        found: u64,
    },
    /// An index lies outside of what it indexes.
    Index {
        /// What was indexed, in words.
        what: &'static str,
        /// The number of valid indices.
        limit: u64,
        /// The index given.
        found: u64,
    },
    /// A size does not fit its integer type.
    Overflow {
        /// The size, in words.
        what: &'static str,
    },
    /// The weights want another kind of activations: float formats take `f32` rows, all others quantised rows.
    Input {
        /// The name of the weights' format.
        format: &'static str,
    },
    /// The thread pool could not be built.
    Threads {
        /// The count asked for.
        count: usize,
        /// What the operating system said, or why the count is refused.
        reason: String,
    },
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { what, expected, found } => write!(f, "{what}: expected {expected}, found {found}"),
            Self::Multiple { what, of, found } => write!(f, "{what}: {found} is not a positive multiple of {of}"),
            Self::Index { what, limit, found } => write!(f, "{what}: index {found} of {limit}"),
            Self::Overflow { what } => write!(f, "{what} overflows"),
            Self::Input { format } => write!(f, "{format} weights cannot take this kind of activations"),
            Self::Threads { count, reason } => write!(f, "no pool of {count} threads: {reason}"),
        }
    }
}

impl std::error::Error for KernelError {}

/// Fails with [`KernelError::Shape`] unless the two sizes agree.
pub(crate) fn expect(what: &'static str, expected: usize, found: usize) -> Result<(), KernelError> {
    if expected == found {
        return Ok(());
    }
    Err(KernelError::Shape { what, expected: expected as u64, found: found as u64 })
}

/// Fails with [`KernelError::Multiple`] unless `found` is a positive multiple of `of`.
pub(crate) fn multiple(what: &'static str, of: usize, found: usize) -> Result<(), KernelError> {
    if found > 0 && found.is_multiple_of(of) {
        return Ok(());
    }
    Err(KernelError::Multiple { what, of: of as u64, found: found as u64 })
}

/// The product of two sizes, or [`KernelError::Overflow`].
pub(crate) fn product(what: &'static str, a: usize, b: usize) -> Result<usize, KernelError> {
    a.checked_mul(b).ok_or(KernelError::Overflow { what })
}
