//! row: n
//! error: E0053
//! says: method `view` has an incompatible type for trait
//! A module in place of memtier, whose contexts can be kept.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub mod fake {
    pub mod __private {
        pub use memtier::__private::*;

        #[cfg(crime)]
        #[derive(Clone, Copy)]
        pub struct Cx<P>(pub core::marker::PhantomData<P>);
        #[cfg(crime)]
        impl<P> Cx<P> {
            pub fn span<'a, E: Element, T>(&self, _: &'a Owned<E, T>) -> StableSpan<'a, E, P> {
                panic!("read")
            }
            pub fn span_mut<'a, E: Element, T>(&self, _: &'a mut Owned<E, T>) -> StableSpanMut<'a, E, P> {
                panic!("write")
            }
        }
    }
}

#[tier(EnginePersistent, dims = Dims, crate = self::fake)]
pub struct Work {
    #[shape(hidden)]
    pub data: f32,
}

pub fn main() -> Result<(), Error> {
    assert_eq!(Work::price(&DIMS)?, Bytes::kib(4));
    Ok(())
}
