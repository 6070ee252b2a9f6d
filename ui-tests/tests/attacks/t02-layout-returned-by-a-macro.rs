//! row: n
//! error: E0308
//! says: expected `usize`, found `Result<__MtLayout, _>`
//! The same from a macro, whose tokens nobody has read.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[derive(Clone, Copy)]
pub struct Size {
    pub elements: usize,
}

macro_rules! sized_as {
    ($dims:expr) => {{
        #[cfg(crime)]
        return Ok(<Stolen as Declare>::price(&Size { elements: 1 << 20 }, &mut |_| {}).unwrap());
        #[cfg(not(crime))]
        $dims.elements
    }};
}

#[tier(EnginePersistent, dims = Size, space = Host)]
pub struct Stolen {
    #[shape({ let size = dims; sized_as!(size) })]
    pub data: f32,
}

pub fn main() -> Result<(), Error> {
    assert_eq!(Stolen::price(&Size { elements: 1 })?, Bytes::kib(4));
    Ok(())
}
