//! `cfg` and `cfg_attr`, on fields and around our attributes.

use memtier::{BlockPool, GlobalKv, Place, SwaKv, f16, graph_captured, tier};

use crate::{DIMS, Dims, shapes};

/// Some fields are there.
#[tier(ModelResident, dims = Dims)]
pub struct W {
    /// There.
    #[cfg(true)]
    #[shape(hidden)]
    pub there: f32,
    /// Not there: its type does not exist, its attributes make no sense.
    #[cfg(false)]
    #[shape(nothing, align = "256")]
    pub gone: does::not::Exist,
    /// Not there either.
    #[cfg(false)]
    pub gone_too: [does::not::Exist; nothing],
    /// One of two with this name.
    #[cfg(true)]
    #[shape(rows)]
    pub either: f32,
    /// One of two with this name.
    #[cfg(false)]
    #[shape(rows)]
    pub either: f16,
    /// Only its attributes depend on something.
    #[cfg_attr(true, shape(rows, hidden), doc = "With more documentation.")]
    #[cfg_attr(false, align(3))]
    pub attributes: f32,
    /// Nested, and there.
    #[cfg(not(false))]
    pub inner: Inner,
}

/// Nested.
#[tier(ModelResident, dims = Dims)]
pub struct Inner {
    /// An array.
    #[shape(hidden)]
    pub x: f32,
}

/// Gone altogether.
#[cfg(false)]
#[tier(ModelResident, dims = Nothing)]
pub struct Gone {
    pub x: does::not::Exist,
}

/// Some parts are there.
#[graph_captured]
pub struct Model {
    /// There.
    #[cfg(true)]
    pub w: W,
    /// There.
    pub kv: BlockPool<GlobalKv<f16>>,
    /// Not there.
    #[cfg(false)]
    pub gone: does::not::Exist,
    /// One of two.
    #[cfg(false)]
    pub window: does::not::Exist,
    /// One of two.
    #[cfg(not(false))]
    pub window: BlockPool<SwaKv<f16>>,
}

/// What is there has a view.
pub fn views<P: Place<Space = memtier::Host>>(view: ModelView<'_, P>) -> usize {
    let ModelView { w: WRef { there, either, attributes, inner }, kv: _, window: _ } = view;
    there.len() + either.len() + attributes.len() + inner.x.len()
}

#[test]
fn only_what_is_there_is_laid_out() {
    let names: Vec<_> = shapes(W::fields(&DIMS)).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["there", "either", "attributes", "inner.x"]);
}
