//! A module in place of memtier, whose arithmetic lies: a shape is a number, and whoever writes one may write any.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub mod fake {
    pub mod __private {
        pub use memtier::__private::*;

        pub struct Math;
        impl Math {
            pub fn of(_: &str) -> Self {
                Math
            }
            pub fn mul(&self, _: usize, other: usize) -> usize {
                other
            }
            pub fn add(&self, one: usize, other: usize) -> usize {
                one.wrapping_add(other)
            }
            pub fn done(&self) -> Result<(), SizeError> {
                Ok(())
            }
        }
        pub const fn constant(_: bool, _: &str) {}
        pub const fn has_size(_: &[usize], _: usize) -> bool {
            true
        }
        pub const fn has_whole_rows(_: &[usize], _: usize) -> bool {
            true
        }
        pub fn value<T>(_: impl FnOnce() -> T) -> usize {
            usize::MAX
        }
    }
}

const ZERO: usize = 0;

macro_rules! zero {
    () => {
        0
    };
}

#[tier(EnginePersistent, dims = Dims, space = Host, crate = self::fake)]
pub struct Nothing {
    #[shape(ZERO, 4)]
    pub data: f32,
}

#[tier(EnginePersistent, dims = Dims, space = Host, crate = self::fake)]
pub struct Ragged {
    #[shape(2, 33)]
    pub data: Q8_0,
}

#[tier(EnginePersistent, dims = Dims, space = Host, crate = self::fake)]
pub struct Endless {
    #[shape({ let _ = hidden; zero!() }, 4)]
    pub data: f32,
}

#[tier(EnginePersistent, dims = Dims, space = Host, crate = self::fake)]
pub struct Short {
    #[shape(vocab * hidden)]
    pub data: f32,
}

pub fn main() -> Result<(), Error> {
    assert_eq!(Nothing::price(&DIMS), Err(SizeError::Zero { field: "data" }));
    assert!(matches!(Ragged::price(&DIMS), Err(SizeError::Ragged { field: "data", columns: 33, .. })));
    assert_eq!(Endless::price(&DIMS), Err(SizeError::Overflow { field: "data" }));
    assert_eq!(Short::fields(&DIMS)?[0].shape, [DIMS.hidden]);
    Ok(())
}
