//! Quantities that cannot be mixed up: [`Bytes`], [`Tokens`], [`Blocks`] and [`Layers`] are different types, and none of
//! them subtracts.
//!
//! `needed - held` is how block counters went negative in other engines; here the question is asked as
//! [`beyond`](Blocks::beyond), which is never negative, or as [`minus`](Blocks::minus), which is a typed error.
//!
//! ```
//! use memtier::{Blocks, Bytes, Tokens};
//!
//! let held = Blocks::new(5);
//! let needed = Tokens::new(60).in_blocks_of(Tokens::new(16));
//! assert_eq!(needed, Blocks::new(4));
//! assert_eq!(needed.beyond(held), Blocks::ZERO); // four wanted, five there: nothing is missing
//! assert_eq!(Bytes::mib(2).count(), 2 << 20);
//! ```

use std::{fmt, iter, ops};

/// A size formula left the range of `u64`, or more was taken from a count than it held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a size formula left the range of 64 bits: one of its factors is absurd, check shapes, counts and limits")]
pub struct Overflow;

/// Never implemented: says what to write instead of an operator (row s). With no impl of the operators at all, the compiler
/// would say no more than that there is none.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Unit}` is calculated with methods, not with operators",
    label = "an operator would wrap around, or mix units",
    note = "`needed - held` is `needed.beyond(held)`, which is never negative, or `needed.minus(held)?`, which is checked",
    note = "sums and products are `a.plus(b)?`, `Unit::sum(all)?` and `a.times(count)?`; tokens become blocks by \
            `tokens.in_blocks_of(per_block)`; the bare number is `a.count()`"
)]
pub trait Operand<Unit> {
    #[doc(hidden)]
    fn applied(self, to: Unit) -> Unit;
}

/// What is summed. The compiler shows our sentence only where the type that it is about is not the one that `Sum` is for.
#[doc(hidden)]
pub struct Summand<T>(T);

macro_rules! operators {
    ($name:ident: $($operator:ident $method:ident),*) => {
        $(
            #[doc(hidden)]
            impl<T: Operand<Self>> ops::$operator<T> for $name {
                type Output = Self;

                fn $method(self, other: T) -> Self {
                    other.applied(self)
                }
            }
        )*

        #[doc(hidden)]
        impl<T> iter::Sum<T> for $name
        where
            Summand<T>: Operand<Self>,
        {
            fn sum<I: Iterator<Item = T>>(parts: I) -> Self {
                parts.fold(Self::ZERO, |sum, part| Summand(part).applied(sum))
            }
        }
    };
}

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident, $one:literal, $many:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
        pub struct $name(u64);

        impl $name {
            /// None of it.
            pub const ZERO: Self = Self(0);
            /// The largest count.
            pub const MAX: Self = Self(u64::MAX);

            /// `count` of them.
            pub const fn new(count: u64) -> Self {
                Self(count)
            }

            /// The bare number, for printing and for device memory.
            pub const fn count(self) -> u64 {
                self.0
            }

            /// Whether there are none.
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }

            /// The sum.
            ///
            /// # Errors
            /// [`Overflow`] past `u64::MAX`.
            pub const fn plus(self, other: Self) -> Result<Self, Overflow> {
                match self.0.checked_add(other.0) {
                    Some(sum) => Ok(Self(sum)),
                    None => Err(Overflow),
                }
            }

            /// What is left when `other` is taken away.
            ///
            /// # Errors
            /// [`Overflow`] when `other` is larger.
            pub const fn minus(self, other: Self) -> Result<Self, Overflow> {
                match self.0.checked_sub(other.0) {
                    Some(rest) => Ok(Self(rest)),
                    None => Err(Overflow),
                }
            }

            /// `count` times as much.
            ///
            /// # Errors
            /// [`Overflow`] past `u64::MAX`.
            pub const fn times(self, count: u64) -> Result<Self, Overflow> {
                match self.0.checked_mul(count) {
                    Some(product) => Ok(Self(product)),
                    None => Err(Overflow),
                }
            }

            /// How many are missing when `held` are there: never negative.
            pub const fn beyond(self, held: Self) -> Self {
                Self(self.0.saturating_sub(held.0))
            }

            /// The sum of all.
            ///
            /// # Errors
            /// [`Overflow`] past `u64::MAX`.
            pub fn sum(parts: impl IntoIterator<Item = Self>) -> Result<Self, Overflow> {
                parts.into_iter().try_fold(Self::ZERO, Self::plus)
            }
        }

        operators!($name: Add add, Sub sub, Mul mul, Div div);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} {}", self.0, if self.0 == 1 { $one } else { $many })
            }
        }
    };
}

unit!(
    /// A number of bytes.
    Bytes,
    "byte",
    "bytes"
);
unit!(
    /// A number of tokens of one sequence.
    Tokens,
    "token",
    "tokens"
);
unit!(
    /// A number of pool blocks.
    Blocks,
    "block",
    "blocks"
);
unit!(
    /// A number of transformer layers.
    Layers,
    "layer",
    "layers"
);

impl Bytes {
    /// `count` KiB (1024 bytes each). In a constant, too many are a compile error.
    ///
    /// # Panics
    /// When the product leaves `u64`; for a number that comes from outside use [`times`](Bytes::times) on `Bytes::kib(1)`.
    pub const fn kib(count: u64) -> Self {
        Self::scaled(count, 1 << 10)
    }

    /// `count` MiB (1024 KiB each). In a constant, too many are a compile error.
    ///
    /// # Panics
    /// When the product leaves `u64`; for a number that comes from outside use [`times`](Bytes::times) on `Bytes::mib(1)`.
    pub const fn mib(count: u64) -> Self {
        Self::scaled(count, 1 << 20)
    }

    /// `count` GiB (1024 MiB each). In a constant, too many are a compile error.
    ///
    /// # Panics
    /// When the product leaves `u64`; for a number that comes from outside use [`times`](Bytes::times) on `Bytes::gib(1)`.
    pub const fn gib(count: u64) -> Self {
        Self::scaled(count, 1 << 30)
    }

    const fn scaled(count: u64, unit: u64) -> Self {
        match count.checked_mul(unit) {
            Some(bytes) => Self(bytes),
            None => panic!("this many bytes leave the range of 64 bits"),
        }
    }

    /// Whole MiB, rounded up: how reports print sizes.
    pub const fn in_mib(self) -> u64 {
        self.0.div_ceil(1 << 20)
    }

    /// Rounded up to a multiple of `align` bytes.
    ///
    /// # Errors
    /// [`Overflow`] when the multiple leaves `u64` or `align` is zero.
    pub const fn aligned(self, align: u64) -> Result<Self, Overflow> {
        match if align == 0 { None } else { self.0.checked_next_multiple_of(align) } {
            Some(bytes) => Ok(Self(bytes)),
            None => Err(Overflow),
        }
    }
}

impl Tokens {
    /// The blocks that hold this many tokens, at `per_block` tokens each (a block of zero tokens counts as one).
    pub const fn in_blocks_of(self, per_block: Tokens) -> Blocks {
        Blocks(self.0.div_ceil(if per_block.0 == 0 { 1 } else { per_block.0 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_beyond_held_is_never_negative() {
        assert_eq!(Blocks::new(4).beyond(Blocks::new(5)), Blocks::ZERO);
        assert_eq!(Blocks::new(4).minus(Blocks::new(5)), Err(Overflow));
    }

    #[test]
    fn sizes_do_not_wrap() {
        assert_eq!(Bytes::MAX.plus(Bytes::new(1)), Err(Overflow));
        assert_eq!(Bytes::mib(1).times(u64::MAX), Err(Overflow));
        assert_eq!(Bytes::MAX.aligned(256), Err(Overflow));
        assert_eq!(Bytes::new(1).aligned(0), Err(Overflow));
    }

    #[test]
    fn a_partial_block_is_a_block() {
        let per_block = Tokens::new(16);
        assert_eq!(Tokens::new(0).in_blocks_of(per_block), Blocks::ZERO);
        assert_eq!(Tokens::new(16).in_blocks_of(per_block), Blocks::new(1));
        assert_eq!(Tokens::new(17).in_blocks_of(per_block), Blocks::new(2));
        assert_eq!(Tokens::new(17).in_blocks_of(Tokens::ZERO), Blocks::new(17));
    }
}
