//! What an expression over the dims can be.

use memtier::{Packed, PackedFormat, tier};

use crate::shapes;

/// A format.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bits(u64);

impl PackedFormat for Bits {
    fn bytes(&self, shape: &[usize]) -> Option<memtier::Bytes> {
        let elements: usize = shape.iter().product();
        Some(memtier::Bytes::new((elements as u64 * self.0).div_ceil(8)))
    }
}

/// Dims that own something: they are not `Copy`.
#[derive(Clone)]
pub struct Dims {
    /// A number.
    pub hidden: usize,
    /// Another one.
    pub heads: u32,
    /// A number for each layer.
    pub widths: Vec<usize>,
    /// A nested one.
    pub rope: Rope,
}

/// Nested dims.
#[derive(Clone, Copy)]
pub struct Rope {
    /// A number.
    pub dim: usize,
}

impl Dims {
    fn padded(&self, by: usize) -> usize {
        self.hidden + by
    }

    fn format(&self) -> Bits {
        Bits(4)
    }
}

const ROWS: usize = 3;
static COLUMNS: usize = 5;

const fn twice(number: usize) -> usize {
    number * 2
}

/// A struct in an expression.
pub struct Pair {
    hidden: usize,
    other: usize,
}

/// Each shape is one kind of expression.
#[tier(ModelResident, dims = Dims)]
pub struct W {
    /// Literals.
    #[shape(1, 2_usize, 0x10)]
    pub literals: f32,
    /// Constants, and a path to one.
    #[shape(ROWS, self::ROWS, usize::BITS as usize)]
    pub constants: f32,
    /// Constant arithmetic.
    #[shape(ROWS * 2 + 1, (1 + 2) * 3, 7 % 4, 9 / 2, 1 << 4)]
    pub arithmetic: f32,
    /// Arithmetic of the dims, with parentheses and casts.
    #[shape(hidden * 2 + 1, (hidden + 1) * 2, hidden - 1, heads as usize * 4, (heads as usize), ((hidden)))]
    pub dims: f32,
    /// Shifts, and what the integers can do.
    #[shape(hidden << 1, hidden >> (heads - 2), hidden.pow(2), hidden.div_ceil(3), hidden.next_multiple_of(256))]
    pub methods: f32,
    /// Methods of others.
    #[shape(hidden.max(100), widths.len(), widths.iter().copied().max().unwrap_or(1))]
    pub others: f32,
    /// Fields of fields, items, methods of the dims.
    #[shape(rope.dim, widths[0], padded(rope.dim), dims.padded(1))]
    pub places: f32,
    /// Functions have a path.
    #[shape(self::twice(hidden), usize::min(hidden, 4), crate::expressions::twice(ROWS))]
    pub functions: f32,
    /// Names that the expression binds are its own.
    #[shape({ let hidden = 7; hidden * 2 }, widths.iter().map(|heads| heads * 2).sum(), match rope { Rope { dim } => dim + hidden })]
    pub bound: f32,
    /// Branches, structs, tuples, references.
    #[shape(
        if heads > 3 { hidden } else { 1 },
        { let Pair { hidden: a, other } = Pair { hidden, other: 2 }; a * other },
        [hidden, 2][1],
        *&hidden,
    )]
    pub rest: f32,
    /// A format from a method, with a static in the shape.
    #[shape(COLUMNS, hidden, format = format())]
    pub format: Packed<Bits>,
    /// A constant format.
    #[shape(hidden)]
    #[format(Bits(16))]
    pub constant_format: Packed<Bits>,
    /// An alignment that is computed.
    #[shape(hidden)]
    #[align(hidden * 128)]
    pub aligned: f32,
    /// Dims that are borrowed from ours.
    #[dims(rope)]
    pub rope: Inner,
    /// Dims by value and by reference, for each item.
    #[dims(Rope { dim: widths[index] + index })]
    pub by_value: [Inner; widths.len()],
    /// The same.
    #[dims(&rope)]
    pub by_reference: [Inner; ROWS - 1],
    /// The same dims, which are not `Copy`.
    pub same: [Same; heads as usize - 2],
}

/// Nested.
#[tier(ModelResident, dims = Rope)]
pub struct Inner {
    /// An array.
    #[shape(dim)]
    pub x: u8,
}

/// Nested.
#[tier(ModelResident, dims = Dims)]
pub struct Same {
    /// An array.
    #[shape(hidden)]
    pub x: u8,
}

/// Without dims.
#[tier(ModelResident, dims = ())]
pub struct Constant {
    /// An array.
    #[shape(ROWS, 2)]
    pub x: u8,
}

#[test]
fn every_kind_of_expression_has_its_value() {
    let dims = Dims { hidden: 8, heads: 4, widths: vec![5, 6], rope: Rope { dim: 2 } };
    let fields = shapes(W::fields(&dims));
    let of =
        |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, shape)| shape.clone()).unwrap_or_default();
    assert_eq!(of("literals"), [1, 2, 16]);
    assert_eq!(of("constants"), [3, 3, 64]);
    assert_eq!(of("arithmetic"), [7, 9, 3, 4, 16]);
    assert_eq!(of("dims"), [17, 18, 7, 16, 4, 8]);
    assert_eq!(of("methods"), [16, 2, 64, 3, 256]);
    assert_eq!(of("others"), [100, 2, 6]);
    assert_eq!(of("places"), [2, 5, 10, 9]);
    assert_eq!(of("functions"), [16, 4, 6]);
    assert_eq!(of("bound"), [14, 22, 10]);
    assert_eq!(of("rest"), [8, 16, 2, 8]);
    assert_eq!(of("format"), [5, 8]);
    assert_eq!((of("rope.x"), of("by_value[1].x"), of("by_reference[1].x")), (vec![2], vec![7], vec![2]));
    assert_eq!(of("same[1].x"), [8]);
    assert_eq!(shapes(Constant::fields(&()))[0].1, [3, 2]);
    let aligned = W::fields(&dims).unwrap().into_iter().find(|field| field.name == "aligned").unwrap();
    assert_eq!(aligned.offset.count() % 1024, 0);
}
