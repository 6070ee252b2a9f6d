//! row: n
//! error: E0308
//! says: mismatched types
//! A module in place of memtier, whose fields give their address away with each view.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub mod fake {
    pub mod __private {
        pub use memtier::__private::*;

        #[cfg(crime)]
        pub struct Owned<E: Element, T>(pub Option<memtier::Owned<E, T>>);
        #[cfg(crime)]
        impl<E: Element, T> From<memtier::Owned<E, T>> for Owned<E, T> {
            fn from(own: memtier::Owned<E, T>) -> Self {
                Owned(Some(own))
            }
        }
        #[cfg(crime)]
        impl<E: Element, T> core::ops::Deref for Owned<E, T> {
            type Target = memtier::Owned<E, T>;
            fn deref(&self) -> &memtier::Owned<E, T> {
                self.0.as_ref().unwrap()
            }
        }
        #[cfg(crime)]
        impl<E: Element, T> core::ops::DerefMut for Owned<E, T> {
            fn deref_mut(&mut self) -> &mut memtier::Owned<E, T> {
                self.0.as_mut().unwrap()
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
