//! row: n
//! error: E0199
//! says: implementing the trait `__private::Storage` is not unsafe
//! A module in place of memtier, with a storage trait of its own: a safe one is not implemented, and no engine takes an unsafe one.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub mod fake {
    pub mod __private {
        pub use memtier::__private::*;

        #[cfg(crime)]
        pub trait Storage: Sized + Send + Sync + 'static {
            type Tier;
            type Dims;
            type Layout;
            type Ref<'a, P: Place<Space = Host>>;
            type Mut<'a, P: Place<Space = Host>>;
            const NAME: &'static str;
            fn lay_out(dims: &Self::Dims, walk: &mut Walk<'_, Self::Tier>) -> Result<Self::Layout, SizeError>;
            fn build(layout: &Self::Layout, base: &Base<'_, Self::Tier>) -> Self;
            fn has_shape_of(&self, layout: &Self::Layout) -> bool;
            fn keep(&self, keep: &mut Keep);
            fn view<P: Place<Space = Host>>(&self, cx: &Cx<P>) -> Self::Ref<'_, P>;
            fn view_mut<P: Place<Space = Host>>(&mut self, cx: &Cx<P>) -> Self::Mut<'_, P>;
            fn price(_: &Self::Dims) -> Result<Bytes, SizeError> {
                Ok(Bytes::ZERO)
            }
            fn fields(_: &Self::Dims) -> Result<Vec<FieldInfo>, SizeError> {
                Ok(Vec::new())
            }
        }
    }
}

#[tier(EnginePersistent, dims = Dims, space = Host, crate = self::fake)]
pub struct Work {
    #[shape(hidden)]
    pub data: f32,
}

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let _line = engine.declare::<Work>(DIMS);
    Ok(())
}
