//! row: n
//! error: macro
//! says: implementation of an `unsafe` trait
//! The same with the keyword, in a crate that forbids it: what the macros write is accepted there, this is not.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[tier(EnginePersistent, dims = Dims)]
pub struct Honest {
    #[shape(hidden)]
    pub row: f32,
}

pub struct Thief;

#[cfg(crime)]
unsafe impl Declare for Thief {
    type Spec = ();
    type Priced = ();
    const LABEL: &'static str = "thief";

    fn price(_: &(), _: &mut dyn FnMut(memtier::plan::Demand)) -> Result<(), SizeError> {
        Ok(())
    }
}

pub fn main() {
    assert!(Honest::price(&DIMS).is_ok());
    let Thief = Thief;
}
