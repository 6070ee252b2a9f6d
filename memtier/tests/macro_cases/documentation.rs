//! P5 and P12: documentation that is computed, and documentation of what is generated.

use memtier::{BlockPool, GlobalKv, f16, graph_captured, tier};

use crate::{DIMS, Dims};

macro_rules! documented {
    ($text:literal) => {
        #[doc = concat!("Weights ", $text)]
        #[tier(ModelResident, dims = Dims)]
        pub struct Weights {
            #[doc = concat!("An array ", $text)]
            #[shape(hidden)]
            pub x: f32,
            #[doc = include_str!("included.md")]
            #[shape(hidden)]
            pub y: f32,
            /// Two
            /// lines.
            #[doc = $text]
            #[shape(hidden)]
            pub z: f32,
            #[shape(hidden)]
            undocumented_and_private: f32,
        }

        #[doc = include_str!("included.md")]
        #[graph_captured]
        pub struct Model {
            #[doc = concat!("Weights ", $text)]
            pub weights: Weights,
            #[doc = include_str!("included.md")]
            pub kv: BlockPool<GlobalKv<f16>>,
        }
    };
}
documented!("with a text from elsewhere");

#[test]
fn everything_is_there() {
    assert_eq!(Weights::fields(&DIMS).unwrap().len(), 4);
}
