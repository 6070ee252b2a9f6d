//! P9, P11 and P22: parameters with names that generated code could have taken, several of them, with defaults; and what
//! constant assertions cannot see.

use memtier::{Plain, SizeError, bf16, f16, graph_captured, tier};

use crate::{DIMS, Dims, shapes};

/// Names of others.
#[tier(ModelResident, dims = Dims)]
pub struct Names<Ph: Plain, O: Plain, T: Plain, D: Plain, P: Plain, S: Plain> {
    /// One.
    #[shape(hidden)]
    pub ph: Ph,
    /// Two.
    #[shape(hidden)]
    pub o: O,
    /// Three.
    #[shape(hidden)]
    pub t: T,
    /// Four.
    #[shape(hidden)]
    pub d: D,
    /// Five.
    #[shape(hidden)]
    pub p: P,
    /// Six.
    #[shape(hidden)]
    pub s: S,
}

/// Bounds are not needed where the field says enough.
#[tier(ModelResident, dims = Dims)]
pub struct Many<const A: usize, B, const C: usize = 4, E = bf16>
where
    E: Plain,
{
    /// A constant.
    #[shape(A, hidden)]
    pub a: B,
    /// Two constants, and an expression of them.
    #[shape(A + C, hidden * C)]
    pub c: E,
    /// A lower-case constant stays what it is.
    pub lower: [Lower<2>; layers],
}

/// A constant in lower case.
#[allow(non_upper_case_globals, reason = "the case")]
#[tier(ModelResident, dims = Dims)]
pub struct Lower<const hidden: usize> {
    /// Not a field of the dims.
    #[shape(hidden, rows)]
    pub x: f32,
}

/// A generic bundle that is not generic over its space.
#[graph_captured]
pub struct Model<const A: usize, E: Plain = f16> {
    /// Weights.
    pub weights: Many<A, E>,
    /// Others.
    pub names: Names<E, E, E, E, E, E>,
}

#[test]
fn parameters_are_used_where_they_are_written() {
    assert_eq!(Names::<f32, f16, bf16, u8, u16, u32>::fields(&DIMS).unwrap().len(), 6);
    let fields = shapes(Many::<3, f32>::fields(&DIMS));
    assert_eq!(fields[0], ("a".into(), vec![3, 8]));
    assert_eq!(fields[1], ("c".into(), vec![7, 32]));
    assert_eq!(fields[2], ("lower[0].x".into(), vec![2, 3]));
    assert_eq!(shapes(Many::<3, f32, 5, u8>::fields(&DIMS))[1].1, [8, 40]);
}

/// What leaves its range for some arguments only.
#[tier(ModelResident, dims = Dims)]
pub struct Wide<const A: usize> {
    /// The product is not made in a constant: no assertion can see it before there is an `A`.
    #[shape(A, A, hidden)]
    pub x: f32,
    /// With a number of the dims it is made when it is priced.
    #[shape(A + hidden)]
    pub y: f32,
}

#[test]
fn what_a_constant_cannot_see_is_a_typed_error() {
    assert!(Wide::<4>::price(&DIMS).is_ok());
    assert_eq!(Wide::<{ usize::MAX }>::price(&DIMS), Err(SizeError::Overflow { field: "x" }));
    let fine = Wide::<{ 1 << 31 }>::price(&Dims { hidden: usize::MAX, ..DIMS });
    assert_eq!(fine, Err(SizeError::Overflow { field: "x" }));
}
