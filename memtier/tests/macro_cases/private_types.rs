//! P7: private types in the fields of public structs, and visibilities of every kind.

use memtier::{Host, Place, graph_captured, tier};

use crate::{DIMS, Dims};

#[tier(ModelResident, dims = Dims)]
struct P {
    #[shape(hidden)]
    x: f32,
}

/// A public storage with a private one in it.
#[tier(ModelResident, dims = Dims)]
pub struct W {
    p: P,
    many: [P; layers],
    #[when(rows > 1)]
    not_always: P,
    #[shape(rows)]
    pub(crate) rows: f32,
    #[shape(rows)]
    pub(in crate::private_types) here: f32,
}

/// A public bundle with a private part in it.
#[graph_captured]
pub struct Model {
    p: P,
    /// A public part.
    pub w: W,
}

/// Views have the visibility of the fields: here we see them all.
pub fn total<S: Place<Space = Host>>(model: &mut ModelView<'_, S>) -> usize {
    let WRef { p, many, not_always, rows, here } = model.w;
    let inner: usize = many.iter().map(|p| p.x.len()).sum();
    model.p.x.len() + p.x.len() + inner + not_always.map_or(0, |p| p.x.len()) + rows.len() + here.len()
}

mod inside {
    use memtier::tier;

    #[tier(EnginePersistent, dims = super::Dims)]
    pub(super) struct Inside {
        #[shape(hidden)]
        pub(super) x: f32,
        #[shape(rows)]
        y: f32,
    }

    pub(super) fn both<P: memtier::Place>(view: &InsideMut<'_, P>) -> usize {
        view.x.len() + view.y.len()
    }
}

#[test]
fn a_storage_can_be_declared_in_a_function() {
    #[tier(EnginePersistent, dims = Dims)]
    struct Local {
        #[shape(hidden)]
        x: f32,
    }
    #[graph_captured]
    struct Model {
        local: Local,
    }
    fn lines(lines: ModelLines) -> memtier::Line<Local> {
        lines.local
    }
    let _ = (lines, inside::both::<memtier::Eager<Host>>);
    assert_eq!(Local::price(&DIMS), inside::Inside::price(&DIMS));
    assert!(P::price(&DIMS).unwrap() <= W::price(&DIMS).unwrap());
}
