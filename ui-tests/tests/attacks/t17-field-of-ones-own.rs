//! row: n
//! error: E0308
//! says: mismatched types
//! The second stage of the macro without the first: a field that says it is an array and is something else.

#![forbid(unsafe_code)]

use memtier::__private::{Cx, Keep, Slot, __MtStorage};
use memtier::*;
use ui_tests::*;

#[cfg(not(crime))]
pub type Field = Owned<f32, EnginePersistent>;
#[cfg(crime)]
pub struct Field(pub Option<Owned<f32, EnginePersistent>>);

#[cfg(crime)]
impl Field {
    pub fn has_shape_of(&self, _: &Slot<f32>) -> bool {
        true
    }
    pub fn keep(&self, _: &mut Keep) {}
    pub fn span<P: Place<Space = Host>>(&self, _: &Cx<P>) -> StableSpan<'_, f32, P> {
        panic!("read")
    }
    pub fn span_mut<P: Place<Space = Host>>(&mut self, _: &Cx<P>) -> StableSpanMut<'_, f32, P> {
        panic!("write")
    }
}

#[derive(__MtStorage)]
#[__mt_tier(EnginePersistent, dims = Dims, space = Host)]
pub struct Work {
    #[__mt_attr(shape(hidden))]
    #[__mt_field(element, pub, f32)]
    data: Field,
}

pub fn main() -> Result<(), Error> {
    assert_eq!(Work::price(&DIMS)?, Bytes::kib(4));
    Ok(())
}
