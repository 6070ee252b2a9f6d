//! P1: raw identifiers, for fields and for the struct.

use memtier::{BlockPool, GlobalKv, f16, graph_captured, tier};

use crate::{DIMS, Dims, shapes};

/// Keywords.
#[tier(ModelResident, dims = Dims)]
pub struct W {
    /// A keyword of every edition.
    #[shape(hidden)]
    pub r#type: f32,
    /// A keyword of the 2024 edition.
    #[shape(rows, hidden)]
    pub r#gen: f16,
}

/// A keyword as a name.
#[tier(ModelResident, dims = r#Keyword)]
pub struct r#Match {
    /// A keyword in a shape.
    #[shape(r#fn)]
    pub r#impl: f32,
    /// A nested keyword.
    #[dims(r#fn(r#dyn))]
    pub r#mod: [W; r#dyn],
}

/// Dims with keywords.
#[derive(Clone, Copy)]
pub struct r#Keyword {
    /// A number.
    pub r#fn: usize,
    /// Another one.
    pub r#dyn: usize,
}

impl r#Keyword {
    fn r#fn(&self, hidden: usize) -> Dims {
        Dims { hidden, ..DIMS }
    }
}

/// A bundle.
#[graph_captured]
pub struct B {
    /// Weights.
    pub r#struct: W,
    /// A pool.
    pub r#pub: BlockPool<GlobalKv<f16>>,
}

#[test]
fn names_are_without_the_prefix() {
    let fields = shapes(W::fields(&DIMS));
    assert_eq!(fields, [("type".into(), vec![8]), ("gen".into(), vec![3, 8])]);
    let fields = shapes(r#Match::fields(&r#Keyword { r#fn: 7, r#dyn: 1 }));
    assert_eq!(fields[0], ("impl".into(), vec![7]));
    assert_eq!(fields[1], ("mod[0].type".into(), vec![1]));
    assert_eq!(<r#Match as memtier::Storage>::NAME, "Match");
}

/// Accessors keep the name as it was written.
pub fn view<P: memtier::Place<Space = memtier::Host>>(view: WRef<'_, P>, bundle: BView<'_, P>) -> usize {
    view.r#type.len() + view.r#gen.len() + bundle.r#struct.r#type.len() + bundle.r#pub.per_block().count() as usize
}
