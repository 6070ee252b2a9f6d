//! row: m
//! error: E0308
//! says: mismatched types
//! A module in place of memtier, whose `Option` holds two: two write views of one field.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub mod fake {
    pub mod __private {
        pub use memtier::__private::*;
        #[cfg(crime)]
        pub mod core {
            pub use ::core::*;
            pub mod option {
                #[derive(Clone, Copy)]
                pub enum Option<T> {
                    Some(T),
                    None,
                    Two(T, T),
                }
                impl<T> Option<T> {
                    pub fn as_ref(&self) -> Read<'_, T> {
                        Read(self)
                    }
                    pub fn as_mut(&mut self) -> Write<'_, T> {
                        Write(self)
                    }
                }
                pub struct Read<'a, T>(&'a Option<T>);
                impl<'a, T> Read<'a, T> {
                    pub fn map<U>(self, see: impl Fn(&'a T) -> U) -> Option<U> {
                        match self.0 {
                            Option::Some(one) => Option::Two(see(one), see(one)),
                            Option::Two(one, other) => Option::Two(see(one), see(other)),
                            Option::None => Option::None,
                        }
                    }
                }
                pub struct Write<'a, T>(&'a mut Option<T>);
                impl<'a, T> Write<'a, T> {
                    pub fn map<U>(self, mut see: impl FnMut(&'a mut T) -> U) -> Option<U> {
                        match self.0 {
                            Option::Some(one) => Option::Some(see(one)),
                            Option::Two(one, other) => Option::Two(see(one), see(other)),
                            Option::None => Option::None,
                        }
                    }
                }
            }
        }
    }
}

#[tier(EnginePersistent, dims = Dims, crate = self::fake)]
pub struct Twice {
    #[shape(hidden)]
    #[when(layers > 0)]
    pub data: f32,
}

pub fn main() -> Result<(), Error> {
    assert_eq!(Twice::price(&DIMS)?, Bytes::kib(4));
    Ok(())
}
