//! row: n
//! error: E0277
//! says: Place
//! A module in place of memtier, whose places are no places, and a trait with the names of what places are asked for.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub mod fake {
    pub mod __private {
        pub use memtier::__private::*;

        #[cfg(crime)]
        pub trait Place: Sized {
            type Space: memtier::Space;
            /// Everything that a real place can do, without being one.
            fn read<'a>(own: &'a memtier::Owned<f32, EnginePersistent>, cx: &Cx<Self>) -> StableSpan<'a, f32, Self>;
        }
        #[cfg(crime)]
        impl<P: memtier::Place<Space = Host>> Place for P {
            type Space = Host;
            fn read<'a>(own: &'a memtier::Owned<f32, EnginePersistent>, cx: &Cx<P>) -> StableSpan<'a, f32, P> {
                cx.span(own)
            }
        }
    }
}

/// Would be asked if the real methods were there for real places alone.
pub trait Eavesdrop<P> {
    fn span<'a>(self, own: &'a Owned<f32, EnginePersistent>) -> StableSpan<'a, f32, P>;
    fn span_mut<'a>(self, own: &'a mut Owned<f32, EnginePersistent>) -> StableSpanMut<'a, f32, P>;
}
#[cfg(crime)]
impl<P: fake::__private::Place> Eavesdrop<P> for &fake::__private::Cx<P> {
    fn span<'a>(self, own: &'a Owned<f32, EnginePersistent>) -> StableSpan<'a, f32, P> {
        P::read(own, self)
    }
    fn span_mut<'a>(self, _: &'a mut Owned<f32, EnginePersistent>) -> StableSpanMut<'a, f32, P> {
        panic!("the right to take spans was handed out")
    }
}

#[tier(EnginePersistent, dims = Dims, space = Host, crate = self::fake)]
pub struct Work {
    #[shape(hidden)]
    pub data: f32,
}

pub fn main() -> Result<(), Error> {
    assert_eq!(Work::price(&DIMS)?, Bytes::kib(4));
    Ok(())
}
