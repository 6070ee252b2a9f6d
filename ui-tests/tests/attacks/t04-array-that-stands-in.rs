//! row: m
//! error: E0308
//! says: mismatched types
//! A module in place of memtier, whose arrays of storages build each item twice.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub mod fake {
    pub mod __private {
        pub use memtier::__private::*;

        #[cfg(crime)]
        pub struct Nested<N>(pub Vec<(N, N)>);
        #[cfg(crime)]
        impl<N: Storage> Nested<N> {
            pub fn build<T: Tier>(layouts: &[N::Layout], base: &Base<'_, T>) -> Self {
                Nested(layouts.iter().map(|layout| (base.nested::<N>(layout), base.nested::<N>(layout))).collect())
            }
            pub fn has_shape_of(&self, _: &[N::Layout]) -> bool {
                true
            }
            pub fn keep(&self, _: &mut Keep) {}
            pub fn view<P: Place<Space = SpaceOf<N>>>(&self, cx: &Cx<P>) -> NestedRef<'_, N, P> {
                NestedRef(self.0.first().map(|two| two.0.view(cx)))
            }
            pub fn view_mut<P: Place<Space = SpaceOf<N>>>(&mut self, cx: &Cx<P>) -> NestedMut<'_, N, P> {
                NestedMut(self.0.iter_mut().map(|(one, two)| (one.view_mut(cx), two.view_mut(cx))).collect())
            }
        }
        #[cfg(crime)]
        pub struct NestedRef<'a, N: Storage, P: Place<Space = SpaceOf<N>>>(pub Option<N::Ref<'a, P>>);
        #[cfg(crime)]
        impl<N: Storage, P: Place<Space = SpaceOf<N>>> Clone for NestedRef<'_, N, P> {
            fn clone(&self) -> Self {
                *self
            }
        }
        #[cfg(crime)]
        impl<N: Storage, P: Place<Space = SpaceOf<N>>> Copy for NestedRef<'_, N, P> {}
        #[cfg(crime)]
        pub struct NestedMut<'a, N: Storage, P: Place<Space = SpaceOf<N>>>(pub Vec<(N::Mut<'a, P>, N::Mut<'a, P>)>);
    }
}

#[tier(EnginePersistent, dims = Dims)]
pub struct Inner {
    #[shape(hidden)]
    pub data: f32,
}

#[tier(EnginePersistent, dims = Dims, crate = self::fake)]
pub struct Twice {
    pub inner: [Inner; layers],
}

pub fn main() -> Result<(), Error> {
    assert_eq!(Twice::price(&DIMS)?, Bytes::kib(4));
    Ok(())
}
