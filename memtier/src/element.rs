//! What device memory can hold: plain numbers, sub-byte pairs, GGUF blocks, and [`Packed`] tensors whose format is known
//! at run time only.

use std::{fmt, marker::PhantomData};

pub use half::{bf16, f16};

use crate::{Bytes, sealed::Sealed};

/// A type that device memory can hold.
///
/// A field of `n` elements takes `n / PER` units of [`Repr`](Element::Repr): one element a unit for numbers, 32 or 256 for
/// GGUF blocks, two for 4-bit pairs. The trait is closed: every bit pattern of `Repr` must be a value, since device memory
/// starts out with whatever was there.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type that device memory can hold",
    label = "not an element",
    note = "elements are `f32`, `f64`, `f16`, `bf16`, `F8E4M3`, `F8E5M2`, the integers of fixed size, pairs of 4-bit numbers (`I4x2`, \
            `E2M1x2`), GGUF blocks (`Q4_K`, ..), and `Packed<..>` for a format that is known at run time",
    note = "a nested `#[tier(..)]` storage takes no `#[shape(..)]`"
)]
pub trait Element: Sealed + Copy + Send + Sync + 'static {
    /// What is stored: plain data of a fixed size, any bit pattern of which is a value.
    type Repr: Copy + Send + Sync + 'static;
    /// What must be known besides the type to read it; `()` for everything but [`Packed`].
    type Meta: Copy + PartialEq + Send + Sync + 'static;
    /// The name in reports and messages.
    const NAME: &'static str;
    /// Elements in one `Repr`.
    const PER: usize;
}

/// An element that stands alone: everything but [`Packed`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element that has a size of its own",
    label = "device memory cannot hold an array of it",
    note = "elements are `f32`, `f64`, `f16`, `bf16`, `F8E4M3`, `F8E5M2`, the integers of fixed size, pairs of 4-bit numbers (`I4x2`, \
            `E2M1x2`) and GGUF blocks (`Q4_K`, ..); the size of `Packed<..>` depends on a format: `#[format(..)]`",
    note = "a nested `#[tier(..)]` storage takes no `#[shape(..)]`"
)]
pub trait Plain: Element<Meta = ()> {}

macro_rules! numbers { ($($ty:ident $name:literal,)*) => { $(
    impl Sealed for $ty {}
    impl Element for $ty {
        type Repr = $ty;
        type Meta = ();
        const NAME: &'static str = $name;
        const PER: usize = 1;
    }
    impl Plain for $ty {}
)* } }
numbers! {
    u8 "u8", u16 "u16", u32 "u32", u64 "u64", i8 "i8", i16 "i16", i32 "i32", i64 "i64",
    f32 "f32", f64 "f64", f16 "f16", bf16 "bf16", F8E4M3 "f8e4m3", F8E5M2 "f8e5m2",
}

/// An 8-bit float with 4 exponent and 3 mantissa bits (OCP E4M3: no infinities, largest value 448).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct F8E4M3(pub u8);

/// An 8-bit float with 5 exponent and 2 mantissa bits (OCP E5M2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct F8E5M2(pub u8);

macro_rules! blocks { ($($(#[$doc:meta])* $ty:ident: $per:literal elements in $bytes:literal bytes;)*) => { $(
    $(#[$doc])*
    #[derive(Clone, Copy, Debug)]
    #[repr(transparent)]
    #[allow(non_camel_case_types, reason = "the names that model files and their tools use")]
    pub struct $ty(pub [u8; $bytes]);
    impl Sealed for $ty {}
    impl Element for $ty {
        type Repr = $ty;
        type Meta = ();
        const NAME: &'static str = stringify!($ty);
        const PER: usize = $per;
    }
    impl Plain for $ty {}
    const _: () = assert!(size_of::<$ty>() == $bytes);
)* } }
blocks! {
    /// Two 4-bit integers in a byte, the first in the low half.
    I4x2: 2 elements in 1 bytes;
    /// Two 4-bit E2M1 floats in a byte, the first in the low half (the elements of NVFP4 and MXFP4).
    E2M1x2: 2 elements in 1 bytes;
    /// GGUF: 32 4-bit values and an f16 scale.
    Q4_0: 32 elements in 18 bytes;
    /// GGUF: 32 4-bit values, an f16 scale and an f16 minimum.
    Q4_1: 32 elements in 20 bytes;
    /// GGUF: 32 5-bit values and an f16 scale.
    Q5_0: 32 elements in 22 bytes;
    /// GGUF: 32 5-bit values, an f16 scale and an f16 minimum.
    Q5_1: 32 elements in 24 bytes;
    /// GGUF: 32 8-bit values and an f16 scale.
    Q8_0: 32 elements in 34 bytes;
    /// GGUF: a super-block of 256 2-bit values.
    Q2_K: 256 elements in 84 bytes;
    /// GGUF: a super-block of 256 3-bit values.
    Q3_K: 256 elements in 110 bytes;
    /// GGUF: a super-block of 256 4-bit values.
    Q4_K: 256 elements in 144 bytes;
    /// GGUF: a super-block of 256 5-bit values.
    Q5_K: 256 elements in 176 bytes;
    /// GGUF: a super-block of 256 6-bit values.
    Q6_K: 256 elements in 210 bytes;
}

/// A tensor in a format that only the model file knows, or in the packing that a kernel likes best.
///
/// The field is a run of bytes; its length comes from the format, by the same function for the price and for the carve:
///
/// ```
/// use memtier::{Bytes, PackedFormat};
///
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Weight { F16, Q8 }
///
/// impl PackedFormat for Weight {
///     fn bytes(&self, shape: &[usize]) -> Option<Bytes> {
///         let elements = shape.iter().try_fold(1u64, |n, dim| n.checked_mul(*dim as u64))?;
///         match self {
///             Weight::F16 => elements.checked_mul(2),
///             Weight::Q8 => (elements / 32).checked_mul(34).filter(|_| elements.is_multiple_of(32)),
///         }
///         .map(Bytes::new)
///     }
/// }
/// assert_eq!(Weight::Q8.bytes(&[4, 64]), Some(Bytes::new(8 * 34)));
/// assert_eq!(Weight::Q8.bytes(&[4, 33]), None);
/// ```
pub struct Packed<F>(PhantomData<fn() -> F>);

/// How a [`Packed`] tensor is stored.
pub trait PackedFormat: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The exact size of a tensor of `shape` (row-major, the last dimension contiguous), or `None` when the format cannot
    /// hold that shape or the size overflows.
    fn bytes(&self, shape: &[usize]) -> Option<Bytes>;
}

/// What a span of a [`Packed`] tensor knows besides its address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackedMeta<F> {
    /// The storage format.
    pub format: F,
    /// Rows: the product of all dimensions but the last.
    pub rows: usize,
    /// Elements in one row: the last dimension.
    pub columns: usize,
}

impl<F> Clone for Packed<F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F> Copy for Packed<F> {}
impl<F> Sealed for Packed<F> {}
impl<F: PackedFormat> Element for Packed<F> {
    type Repr = u8;
    type Meta = PackedMeta<F>;
    const NAME: &'static str = "packed";
    const PER: usize = 1;
}

/// An element that needs a format: [`Packed`].
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` has its own size",
    label = "takes no format",
    note = "`format` is for `Packed<..>` fields, whose size is known at run time only: remove it, or make the field `Packed<..>`"
)]
pub trait Formatted: Element {
    /// How it is stored.
    type Format: PackedFormat;
    /// What a span of it knows.
    fn meta(format: Self::Format, rows: usize, columns: usize) -> Self::Meta;
}
impl<F: PackedFormat> Formatted for Packed<F> {
    type Format = F;
    fn meta(format: F, rows: usize, columns: usize) -> PackedMeta<F> {
        PackedMeta { format, rows, columns }
    }
}

/// Type equality of two elements, with a sentence for when they differ (row k of the table of illegal states).
#[diagnostic::on_unimplemented(
    message = "the kernel takes `{Other}` elements, this span holds `{Self}`",
    label = "holds `{Self}`",
    note = "spans are never reinterpreted: convert with a kernel, or give the field the element type the kernel takes"
)]
pub trait SameElement<Other: Element>: Element<Meta = Other::Meta> {}
impl<T: Element> SameElement<T> for T {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gguf_blocks_have_the_sizes_of_the_format() {
        // ggml's own static_asserts: 2 + 16, 2 + 2 + 16, 2 + 4 + 16, 2 + 2 + 4 + 16, 2 + 32.
        let sizes = [size_of::<Q4_0>(), size_of::<Q4_1>(), size_of::<Q5_0>(), size_of::<Q5_1>(), size_of::<Q8_0>()];
        assert_eq!(sizes, [18, 20, 22, 24, 34]);
        // 256 elements at 4.5 and 6.5625 bits.
        assert_eq!([size_of::<Q4_K>(), size_of::<Q6_K>()], [144, 210]);
    }
}
