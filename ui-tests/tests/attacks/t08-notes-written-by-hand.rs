//! The second stage of the macro without the first, and a `core` that has its own idea of what cannot be reached.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub mod fake {
    pub mod __private {
        pub use memtier::__private::*;
        pub mod core {
            pub use ::core::*;
            /// Would be the body of every function of the storage.
            macro_rules! unreachable {
                () => {
                    compile_error!("the body of an `unsafe impl` was written here")
                };
            }
            pub(crate) use unreachable;
        }
    }
}

/// Without notes of the first stage nothing is known of its field: it type-checks, as a half typed field does.
#[derive(memtier::__private::__MtStorage)]
#[__mt_tier(EnginePersistent, dims = Dims, space = Host, crate = self::fake)]
pub struct Unknown {
    data: u8,
}

pub fn main() {}
