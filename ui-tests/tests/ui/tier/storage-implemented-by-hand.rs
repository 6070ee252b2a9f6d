//! row: n
//! error: E0200
//! says: requires an `unsafe impl` declaration
//! Views made by hand: an address could be given twice, or be one that nobody owns.

#![forbid(unsafe_code)]

use memtier::__private::{Base, Cx, Keep, Walk};
use memtier::*;
use ui_tests::*;

pub struct Thief;

#[cfg(crime)]
impl Storage for Thief {
    type Tier = EnginePersistent;
    type Dims = Dims;
    type Layout = ();
    type Ref<'a, P: Place<Space = Host>> = ();
    type Mut<'a, P: Place<Space = Host>> = ();
    const NAME: &'static str = "Thief";

    fn lay_out(_: &Dims, _: &mut Walk<'_, EnginePersistent>) -> Result<(), SizeError> {
        Ok(())
    }
    fn build(_: &(), _: &Base<'_, EnginePersistent>) -> Self {
        Thief
    }
    fn has_shape_of(&self, _: &()) -> bool {
        true
    }
    fn keep(&self, _: &mut Keep) {}
    fn view<P: Place<Space = Host>>(&self, _: &Cx<P>) {}
    fn view_mut<P: Place<Space = Host>>(&mut self, _: &Cx<P>) {}
}

pub fn main() {
    let Thief = Thief;
}
