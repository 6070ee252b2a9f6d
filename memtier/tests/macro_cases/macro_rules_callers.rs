//! P2: declarations written by a `macro_rules!` macro.

use memtier::{BlockPool, GlobalKv, bf16, f16, graph_captured, tier};

use crate::{DIMS, Dims, shapes};

macro_rules! storage {
    (
        $(#[$attr:meta])* $vis:vis $name:ident: $dims:ty = $field:ident: $t:ty, [$one:expr, $two:expr],
        nested $inner:ty, $count:expr
    ) => {
        $(#[$attr])*
        #[tier(ModelResident, dims = $dims)]
        $vis struct $name {
            /// An array.
            #[shape($one, $two)]
            $vis $field: $t,
            /// Products of what may be sums.
            #[shape($one * 2, 2 * $two)]
            $vis product: bf16,
            /// Nested.
            $vis one: $inner,
            /// An array of storages.
            $vis many: [$inner; $count],
        }
    };
}

/// What is nested.
#[tier(ModelResident, dims = Dims)]
pub struct Inner {
    /// Two types from a macro.
    #[shape(hidden)]
    pub x: f32,
}

storage! {
    /// From a macro.
    pub Outer: Dims = x: f32, [2 + 3, hidden + 1], nested Inner, 1 + 1
}

macro_rules! bundle {
    ($name:ident { $($part:ident: $t:ty),* }) => {
        /// From a macro.
        #[graph_captured]
        pub struct $name {
            $(
                /// A part.
                pub $part: $t,
            )*
        }
    };
}

bundle!(Model { weights: Outer, kv: BlockPool<GlobalKv<f16>> });

macro_rules! whole {
    ($crate_path:path) => {
        /// All of it from a macro, which the caller cannot name anything in.
        #[tier(EnginePersistent, dims = Dims, crate = $crate_path)]
        pub struct Whole {
            /// An array.
            #[shape(rows, hidden * 2)]
            pub x: f32,
        }
    };
}
whole!(memtier);

#[test]
fn an_expression_keeps_its_precedence() {
    let fields = shapes(Outer::fields(&DIMS));
    assert_eq!(fields[0], ("x".into(), vec![5, 9]));
    assert_eq!(fields[1], ("product".into(), vec![10, 18]), "(2 + 3) * 2 and (hidden + 1) * 2");
    assert_eq!(fields.len(), 5, "one, and an array of two: {fields:?}");
    assert_eq!(shapes(Whole::fields(&DIMS)), [("x".into(), vec![3, 16])]);
}
