//! What distinguishes the quantised formats inside a tile, known at compile time.

use crate::blocks;
use crate::format::Format;
use crate::packed::{Layout, ScaleKind};

/// A quantised format as a type: the tile functions are generic over it.
pub(super) trait Spec {
    const FORMAT: Format;

    /// Bits of a quant in the low lines: 2, 4 or 8.
    const LOW: usize = parts(Self::FORMAT).0;
    /// Bits in the high lines: 0, 1 or 2.
    const HIGH: usize = parts(Self::FORMAT).1;
    const SCALES: ScaleKind = parts(Self::FORMAT).2;
    /// Blocks of 32 columns in a unit, except perhaps the last.
    const BLOCKS: usize = Self::SCALES.blocks();
    /// Bytes of a block's quants.
    const LINES_BYTES: usize = 64 * (Self::LOW + Self::HIGH);
    /// Bytes of a whole unit.
    const UNIT_BYTES: usize = Self::SCALES.bytes() + Self::BLOCKS * Self::LINES_BYTES;
    /// Parts of a block of 32 columns that have a scale of their own: 1 or 2.
    const PARTS: usize = if matches!(Self::SCALES, ScaleKind::Bytes16 | ScaleKind::Nibbles16Min) { 2 } else { 1 };
    /// Whether quants are stored with a bias, and the bias's power of two.
    const CENTRED: bool = blocks::bias(Self::FORMAT) > 0;
    const BIAS_BITS: u32 = if Self::CENTRED { blocks::bias(Self::FORMAT).ilog2() } else { 0 };
    /// Whether minimums are added (legacy formats) or subtracted (K formats).
    const ADDS_MIN: bool = matches!(Self::SCALES, ScaleKind::HalfMin);

    /// Bytes that a tile of `blocks` blocks reads of a group.
    fn read_bytes(blocks: usize) -> usize {
        blocks.div_ceil(Self::BLOCKS) * Self::SCALES.bytes() + blocks * Self::LINES_BYTES
    }
}

const fn parts(format: Format) -> (usize, usize, ScaleKind) {
    match Layout::of(format) {
        Layout::Quant { low, high, scales } => (low, high, scales),
        Layout::Float(_) => panic!("float formats have tiles of their own"),
    }
}

macro_rules! specs {
    ($($format:ident)*) => {
        $(
            #[allow(non_camel_case_types, reason = "named like the format")]
            pub(super) struct $format;
            impl Spec for $format {
                const FORMAT: Format = Format::$format;
            }
        )*
    };
}

specs!(Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K);

/// Picks the table `$table::<Spec>()` for a quantised format, or `$float` for a float one.
macro_rules! for_format {
    ($format:expr, $table:ident, $float:expr) => {{
        use $crate::format::Format;
        use $crate::matmul::spec;
        match $format {
            Format::Q4_0 => $table::<spec::Q4_0>(),
            Format::Q4_1 => $table::<spec::Q4_1>(),
            Format::Q5_0 => $table::<spec::Q5_0>(),
            Format::Q5_1 => $table::<spec::Q5_1>(),
            Format::Q8_0 => $table::<spec::Q8_0>(),
            Format::Q2_K => $table::<spec::Q2_K>(),
            Format::Q3_K => $table::<spec::Q3_K>(),
            Format::Q4_K => $table::<spec::Q4_K>(),
            Format::Q5_K => $table::<spec::Q5_K>(),
            Format::Q6_K => $table::<spec::Q6_K>(),
            float @ (Format::F32 | Format::F16 | Format::BF16) => $float(float),
        }
    }};
}
pub(super) use for_format;
