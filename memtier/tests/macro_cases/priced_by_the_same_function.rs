//! P18: nested storages, alignment, and counts near the end of 64 bits.

use memtier::{Bytes, SizeError, tier};

use crate::{DIMS, Dims};

/// One byte.
#[tier(ModelResident, dims = Dims)]
pub struct Byte {
    /// One byte.
    #[shape(1)]
    pub x: u8,
}

/// A byte between two that start on a page.
#[tier(ModelResident, dims = Dims)]
pub struct Pages {
    /// A page.
    #[shape(rows, align = 4096)]
    pub a: u8,
    /// Not a page.
    pub byte: Byte,
    /// A page.
    #[shape(rows)]
    #[align(PAGE)]
    pub b: u8,
    /// More bytes.
    pub bytes: [Byte; layers],
}

const PAGE: usize = 4096;

#[test]
fn gaps_are_priced() {
    let fields = Pages::fields(&DIMS).unwrap();
    let offsets: Vec<u64> = fields.iter().map(|field| field.offset.count()).collect();
    assert_eq!(offsets, [0, 256, 4096, 4352, 4608]);
    assert_eq!(Pages::price(&DIMS), Ok(Bytes::new(8192)));
}

/// Everything that could go over the end.
#[tier(ModelResident, dims = Dims)]
pub struct Huge {
    /// The product of the elements.
    #[shape(rows, hidden)]
    pub product: u8,
    /// Elements times their size.
    #[shape(hidden)]
    pub size: f64,
    /// Items.
    pub items: [Byte; layers],
    /// The sum.
    #[shape(hidden + 1)]
    pub sum: u8,
}

#[test]
fn near_the_end_of_64_bits_there_is_a_typed_error() {
    let error = |dims: Dims| Huge::price(&dims).unwrap_err();
    assert_eq!(error(Dims { rows: usize::MAX, ..DIMS }), SizeError::Overflow { field: "product" });
    let sizes = [usize::MAX, usize::MAX - 1, usize::MAX / 2, usize::MAX / 8, usize::MAX - 255, usize::MAX - 4095];
    for hidden in sizes {
        let error = error(Dims { hidden, rows: 1, layers: 1 });
        assert!(matches!(error, SizeError::Overflow { .. }), "{hidden}: {error}");
    }
    let most = 65_536;
    let many = Dims { layers: usize::MAX, ..DIMS };
    assert_eq!(error(many), SizeError::TooMany { field: "items", count: usize::MAX as u64, most });
    // The largest that fits is priced, to the byte.
    let fits = Dims { hidden: usize::MAX / 16 - 4096, rows: 1, layers: 1 };
    assert!(Huge::price(&fits).is_ok());
}
