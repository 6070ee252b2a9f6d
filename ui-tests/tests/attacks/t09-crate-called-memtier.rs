//! row: m
//! error: E0308
//! says: mismatched types
//! A crate that calls itself memtier: then `::memtier` is no path to trust either, with nothing said in an attribute.

#![forbid(unsafe_code)]

extern crate memtier as real;
#[cfg(crime)]
extern crate self as memtier;

use real::*;
use ui_tests::*;

pub mod __private {
    pub use super::real::__private::*;

    /// Holds one, and another of the same.
    #[cfg(crime)]
    pub struct Nested<N>(pub N, pub N);
    #[cfg(crime)]
    impl<N: Storage> Nested<N> {
        pub fn build<T: Tier>(layouts: &[N::Layout], base: &Base<'_, T>) -> Self {
            Nested(base.nested(&layouts[0]), base.nested(&layouts[0]))
        }
        pub fn has_shape_of(&self, _: &[N::Layout]) -> bool {
            true
        }
        pub fn keep(&self, _: &mut Keep) {}
        pub fn view<P: Place<Space = SpaceOf<N>>>(&self, _: &Cx<P>) -> NestedRef<'_, N, P> {
            panic!("read")
        }
        pub fn view_mut<P: Place<Space = SpaceOf<N>>>(&mut self, _: &Cx<P>) -> NestedMut<'_, N, P> {
            panic!("write both")
        }
    }
}

#[tier(EnginePersistent, dims = Dims)]
pub struct Inner {
    #[shape(hidden)]
    pub data: f32,
}

#[tier(EnginePersistent, dims = Dims)]
pub struct Twice {
    pub inner: [Inner; layers],
}

pub fn main() -> Result<(), Error> {
    assert_eq!(Twice::price(&DIMS)?, Bytes::kib(4));
    Ok(())
}
