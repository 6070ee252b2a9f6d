//! row: macros
//! error: macro
//! says: `L` is a type parameter, and storages in it have a space of their own
//! A nested storage of a type that is chosen later, in a space that is chosen later, too.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Made<L> {
    pub layers: [L; layers],
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims, space = Host)]
pub struct Made<L: Storage<Tier = ModelResident<Host>, Dims = Dims>> {
    pub layers: [L; layers],
}

pub fn main() -> Result<(), Error> {
    #[cfg(not(crime))]
    assert_eq!(<Made<LayerWeights> as Storage>::fields(&DIMS)?.len(), 2 * DIMS.layers);
    Ok(())
}
