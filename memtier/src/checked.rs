//! Checked arithmetic for the expressions in `#[shape(..)]` and its neighbours (row u).

use std::cell::Cell;

use crate::layout::SizeError;

/// Does the arithmetic of one field, and remembers whether some of it left the range of its type. What is computed after that
/// means nothing, and is thrown away by [`done`](Math::done).
#[doc(hidden)]
pub struct Math {
    field: &'static str,
    out_of_range: Cell<bool>,
}

impl Math {
    /// For the expressions of `field`.
    pub fn of(field: &'static str) -> Self {
        Math { field, out_of_range: Cell::new(false) }
    }

    /// Whether everything stayed in range.
    pub fn done(&self) -> Result<(), SizeError> {
        if self.out_of_range.get() { Err(SizeError::Overflow { field: self.field }) } else { Ok(()) }
    }

    fn note<N>(&self, result: Option<N>, otherwise: N) -> N {
        result.unwrap_or_else(|| {
            self.out_of_range.set(true);
            otherwise
        })
    }

    /// `a + b`
    pub fn add<N: Number>(&self, a: N, b: N) -> N {
        self.note(a.plus(b), a)
    }

    /// `a - b`
    pub fn sub<N: Number>(&self, a: N, b: N) -> N {
        self.note(a.minus(b), a)
    }

    /// `a * b`
    pub fn mul<N: Number>(&self, a: N, b: N) -> N {
        self.note(a.times(b), a)
    }

    /// `a / b`
    pub fn div<N: Number>(&self, a: N, b: N) -> N {
        self.note(a.over(b), a)
    }

    /// `a % b`
    pub fn rem<N: Number>(&self, a: N, b: N) -> N {
        self.note(a.modulo(b), a)
    }

    /// `a << bits`, refused when it loses a bit.
    pub fn shl<N: Whole>(&self, a: N, bits: impl TryInto<u32>) -> N {
        self.note(bits.try_into().ok().and_then(|bits| a.left(bits)), a)
    }

    /// `a >> bits`
    pub fn shr<N: Whole>(&self, a: N, bits: impl TryInto<u32>) -> N {
        self.note(bits.try_into().ok().and_then(|bits| a.right(bits)), a)
    }

    /// `a.pow(exponent)`
    pub fn pow<N: Whole>(&self, a: N, exponent: u32) -> N {
        self.note(a.power(exponent), a)
    }

    /// `a.div_ceil(b)`
    pub fn div_ceil<N: Whole>(&self, a: N, b: N) -> N {
        self.note(a.over_rounded_up(b), a)
    }

    /// `a.next_multiple_of(b)`
    pub fn next_multiple_of<N: Whole>(&self, a: N, b: N) -> N {
        self.note(a.multiple_from(b), a)
    }

    /// `a.next_power_of_two()`
    pub fn next_power_of_two<N: Whole>(&self, a: N) -> N {
        self.note(a.power_of_two_from(), a)
    }
}

/// The value of an expression that nothing but its value can come out of: a `return` in it, written by a macro, ends here.
#[doc(hidden)]
#[inline]
pub fn value<T>(expression: impl FnOnce() -> T) -> T {
    expression()
}

/// Refuses a constant dimension, at the place where it is written.
#[doc(hidden)]
#[track_caller]
pub const fn constant(holds: bool, message: &str) {
    if !holds {
        panic!("{}", message);
    }
}

/// Whether an array of a constant shape has a size, at so many bytes an element or block.
#[doc(hidden)]
pub const fn has_size(shape: &[usize], bytes: usize) -> bool {
    let (mut size, mut index) = (bytes as u64, 0);
    while index < shape.len() {
        size = match size.checked_mul(shape[index] as u64) {
            Some(size) => size,
            None => return false,
        };
        index += 1;
    }
    true
}

/// Whether the rows of a constant shape are whole blocks of `per` elements.
#[doc(hidden)]
pub const fn has_whole_rows(shape: &[usize], per: usize) -> bool {
    match shape.last() {
        Some(columns) => columns.is_multiple_of(per),
        None => true,
    }
}

/// What the operators of a shape work on.
#[diagnostic::on_unimplemented(
    message = "a shape cannot calculate with `{Self}`",
    label = "arithmetic in shapes is checked, and works on plain numbers",
    note = "`+ - * / % << >>` in `#[shape(..)]` take two numbers of one type; calculate with anything else in a method of the dims, \
            and name the method"
)]
pub trait Number: Copy {
    #[doc(hidden)]
    fn plus(self, other: Self) -> Option<Self>;
    #[doc(hidden)]
    fn minus(self, other: Self) -> Option<Self>;
    #[doc(hidden)]
    fn times(self, other: Self) -> Option<Self>;
    #[doc(hidden)]
    fn over(self, other: Self) -> Option<Self>;
    #[doc(hidden)]
    fn modulo(self, other: Self) -> Option<Self>;
}

/// Integers without a sign.
#[diagnostic::on_unimplemented(
    message = "a shape cannot calculate this with `{Self}`",
    label = "`<<`, `>>`, `pow`, `div_ceil` and `next_..` work on integers without a sign",
    note = "calculate with anything else in a method of the dims, and name the method"
)]
pub trait Whole: Number {
    #[doc(hidden)]
    fn left(self, bits: u32) -> Option<Self>;
    #[doc(hidden)]
    fn right(self, bits: u32) -> Option<Self>;
    #[doc(hidden)]
    fn power(self, exponent: u32) -> Option<Self>;
    #[doc(hidden)]
    fn over_rounded_up(self, other: Self) -> Option<Self>;
    #[doc(hidden)]
    fn multiple_from(self, other: Self) -> Option<Self>;
    #[doc(hidden)]
    fn power_of_two_from(self) -> Option<Self>;
}

macro_rules! integers { ($($ty:ident)*) => { $(
    impl Number for $ty {
        fn plus(self, other: Self) -> Option<Self> {
            self.checked_add(other)
        }
        fn minus(self, other: Self) -> Option<Self> {
            self.checked_sub(other)
        }
        fn times(self, other: Self) -> Option<Self> {
            self.checked_mul(other)
        }
        fn over(self, other: Self) -> Option<Self> {
            self.checked_div(other)
        }
        fn modulo(self, other: Self) -> Option<Self> {
            self.checked_rem(other)
        }
    }
)* } }
integers! { usize u8 u16 u32 u64 u128 isize i8 i16 i32 i64 i128 }

macro_rules! floats { ($($ty:ident)*) => { $(
    impl Number for $ty {
        fn plus(self, other: Self) -> Option<Self> {
            Some(self + other)
        }
        fn minus(self, other: Self) -> Option<Self> {
            Some(self - other)
        }
        fn times(self, other: Self) -> Option<Self> {
            Some(self * other)
        }
        fn over(self, other: Self) -> Option<Self> {
            Some(self / other)
        }
        fn modulo(self, other: Self) -> Option<Self> {
            Some(self % other)
        }
    }
)* } }
floats! { f32 f64 }

macro_rules! whole { ($($ty:ident)*) => { $(
    impl Whole for $ty {
        fn left(self, bits: u32) -> Option<Self> {
            // `checked_shl` looks at the number of bits only, not at what they push out.
            self.checked_shl(bits).filter(|shifted| shifted >> bits == self)
        }
        fn right(self, bits: u32) -> Option<Self> {
            self.checked_shr(bits)
        }
        fn power(self, exponent: u32) -> Option<Self> {
            self.checked_pow(exponent)
        }
        fn over_rounded_up(self, other: Self) -> Option<Self> {
            (other != 0).then(|| self.div_ceil(other))
        }
        fn multiple_from(self, other: Self) -> Option<Self> {
            self.checked_next_multiple_of(other)
        }
        fn power_of_two_from(self) -> Option<Self> {
            self.checked_next_power_of_two()
        }
    }
)* } }
whole! { usize u8 u16 u32 u64 u128 }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_in_range_is_what_the_operators_say() {
        let math = Math::of("field");
        assert_eq!(math.add(math.mul(3usize, 4), math.sub(9, 2)), 19);
        assert_eq!((math.div(7u32, 2), math.rem(7u32, 2), math.div_ceil(7u32, 2)), (3, 1, 4));
        assert_eq!((math.shl(3usize, 4), math.shr(48usize, 4u8), math.pow(2u64, 10)), (48, 3, 1024));
        assert_eq!((math.next_multiple_of(65usize, 64), math.next_power_of_two(65usize)), (128, 128));
        assert_eq!(math.mul(1.5f32, 2.0), 3.0);
        assert_eq!(math.done(), Ok(()));
    }

    #[test]
    fn constant_shapes_are_looked_at_as_a_whole() {
        assert!(has_size(&[usize::MAX / 4], 4) && !has_size(&[usize::MAX / 4, 2], 4));
        assert!(has_whole_rows(&[3, 512], 256) && !has_whole_rows(&[3, 500], 256));
        assert!(has_size(&[], 4) && has_whole_rows(&[], 256));
    }

    #[test]
    fn what_leaves_the_range_is_remembered_with_its_field() {
        type Case = fn(&Math) -> usize;
        let cases: [Case; 10] = [
            |math| math.add(usize::MAX, 1),
            |math| math.sub(1, 2),
            |math| math.mul(usize::MAX, 2),
            |math| math.div(1, 0),
            |math| math.rem(1, 0),
            |math| math.shl(3, 63),
            |math| math.shl(1, -1),
            |math| math.pow(2, 64),
            |math| math.div_ceil(1, 0),
            |math| math.next_multiple_of(usize::MAX, 4096),
        ];
        for (number, case) in cases.into_iter().enumerate() {
            let math = Math::of("field");
            case(&math);
            assert_eq!(math.done(), Err(SizeError::Overflow { field: "field" }), "case {number}");
        }
    }
}
