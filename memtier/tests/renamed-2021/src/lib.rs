//! P6 and P14: our crate under another name (`crate = mt`), in the 2021 edition; and re-exported by a third one.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unused, clippy::all)]

use mt::{f16, graph_captured, tier, BlockPool, GlobalKv, Place};

/// A crate that re-exports ours, as a framework would.
pub mod framework {
    pub use mt as memory;

    /// A macro of it: what it writes names our crate through the framework.
    #[macro_export]
    macro_rules! scratch {
        ($name:ident, $dims:ty) => {
            /// Written by a macro of another crate.
            #[$crate::framework::memory::tier(EnginePersistent, dims = $dims, crate = $crate::framework::memory)]
            pub struct $name {
                /// An array.
                #[shape(gen)]
                pub gen: f32,
            }
        };
    }
}

/// `gen` is a keyword from 2024 on; here it is a name.
#[derive(Clone, Copy, Debug)]
pub struct Dims {
    /// A number.
    pub gen: usize,
    /// Another one.
    pub r#async: usize,
}

/// Weights.
#[tier(ModelResident, dims = Dims, crate = mt)]
pub struct Weights {
    /// An array.
    #[shape(gen * 2, r#async)]
    pub gen: f32,
    /// Nested.
    pub inner: Inner,
    /// More of them.
    pub more: [Inner; gen],
    /// Not always there.
    #[when(gen > 1)]
    pub maybe: Inner,
}

/// Nested.
#[tier(ModelResident, dims = Dims, crate = ::mt)]
pub struct Inner {
    /// An array.
    #[shape(gen)]
    pub r#async: f32,
}

scratch!(Scratch, Dims);

/// A bundle.
#[graph_captured(crate = mt)]
pub struct Model {
    /// Weights.
    pub weights: Weights,
    /// Scratch.
    pub gen: Scratch,
    /// A pool.
    pub kv: BlockPool<GlobalKv<f16>>,
}

/// Views keep the names.
pub fn elements<P: Place<Space = mt::Host>>(view: &ModelView<'_, P>) -> usize {
    view.weights.gen.len() + view.weights.inner.r#async.len() + view.gen.gen.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_laid_out_as_under_its_own_name() {
        let fields = Weights::fields(&Dims { gen: 2, r#async: 3 }).unwrap();
        let names: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["gen", "inner.async", "more[0].async", "more[1].async", "maybe.async"]);
        assert_eq!(fields[0].shape, [4, 3]);
        assert_eq!(Scratch::price(&Dims { gen: 2, r#async: 3 }).unwrap().count(), 4096);
    }
}
