//! row: n
//! error: E0053
//! says: method `lay_out` has an incompatible type for trait
//! A module in place of memtier, whose `Result` answers with a layout of its own.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub mod fake {
    pub mod __private {
        pub use memtier::__private::*;
        #[cfg(crime)]
        pub mod core {
            pub use ::core::*;
            pub mod result {
                pub enum Result<T, E> {
                    Ok(T),
                    Err(E),
                    Both(T, E),
                }
                impl<T, E> From<::core::result::Result<T, E>> for Result<T, E> {
                    fn from(real: ::core::result::Result<T, E>) -> Self {
                        real.map_or_else(Self::Err, Self::Ok)
                    }
                }
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
