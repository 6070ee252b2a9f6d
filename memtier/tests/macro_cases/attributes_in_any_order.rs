//! P4: other attributes, above ours and below.

use memtier::tier;

use crate::{DIMS, Dims};

/// Below.
#[tier(ModelResident, dims = Dims)]
#[derive(Debug)]
#[repr(C)]
#[must_use = "it is memory"]
pub struct Below {
    /// An array.
    #[shape(hidden)]
    pub x: f32,
}

/// Above.
#[derive(Debug)]
#[repr(C)]
#[must_use = "it is memory"]
#[tier(ModelResident, dims = Dims)]
pub struct Above {
    /// An array.
    #[shape(hidden)]
    pub x: f32,
    /// Nested.
    pub below: Below,
    /// More of them.
    pub more: [Below; layers],
    /// Not always there.
    #[when(layers > 2)]
    pub not: Below,
}

/// Lint levels reach what is generated.
#[allow(non_camel_case_types, non_snake_case, reason = "a name of others")]
#[tier(ModelResident, dims = Dims)]
pub struct lower {
    /// An array.
    #[allow(non_snake_case, reason = "a name of others")]
    #[shape(hidden)]
    pub X: f32,
}

/// Deprecated things are said where they are used.
#[tier(ModelResident, dims = Dims)]
pub struct Old {
    /// An array.
    #[shape(hidden)]
    pub new: f32,
    /// An array.
    #[deprecated(note = "use `new`")]
    #[shape(hidden)]
    pub old: f32,
}

#[test]
fn both_are_storages_that_can_be_printed() {
    fn printed<T: std::fmt::Debug + memtier::Storage<Dims = Dims>>() -> u64 {
        T::price(&DIMS).unwrap().count()
    }
    assert_eq!(printed::<Below>(), 4096);
    assert_eq!(printed::<Above>(), 4096);
    assert_eq!(Old::fields(&DIMS).unwrap().len(), 2);
}
