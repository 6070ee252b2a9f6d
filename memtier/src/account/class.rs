//! The ladder of size classes.

use std::fmt;

use crate::units::{Bytes, Overflow};

/// Up to here classes are powers of two; from here on they are multiples of this.
///
/// The ladder's shape comes from an engine that rebuilds its graphs: below 16 KiB powers of two keep the number of classes
/// at fifteen, above it steps of 16 KiB waste at most 16 KiB a buffer where the next power of two would waste up to half.
const STEP: u64 = 16 << 10;

/// What a request is rounded up to before it is charged and created, so that two shapes of one class share a buffer over a
/// rebuild.
///
/// A class says how much memory there is. How much of it may be read and written is the buffer's
/// [`Length`](super::Length), which is what was asked for.
///
/// ```
/// use memtier::{Bytes, account::SizeClass};
///
/// assert_eq!(SizeClass::of(Bytes::new(3000))?.bytes(), Bytes::kib(4));
/// assert_eq!(SizeClass::of(Bytes::kib(33))?.bytes(), Bytes::kib(48));
/// # Ok::<(), memtier::Overflow>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SizeClass(Bytes);

impl SizeClass {
    /// The smallest class that holds `len`: the next power of two up to 16 KiB, then the next multiple of 16 KiB. Nothing
    /// at all is in the class of one byte.
    ///
    /// # Errors
    /// [`Overflow`] when the class leaves 64 bits.
    pub const fn of(len: Bytes) -> Result<Self, Overflow> {
        if len.count() <= STEP {
            return Ok(SizeClass(Bytes::new(len.count().next_power_of_two())));
        }
        match len.aligned(STEP) {
            Ok(bytes) => Ok(SizeClass(bytes)),
            Err(overflow) => Err(overflow),
        }
    }

    /// Its size in bytes.
    pub const fn bytes(self) -> Bytes {
        self.0
    }
}

impl fmt::Display for SizeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "class of {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(len: u64) -> u64 {
        SizeClass::of(Bytes::new(len)).unwrap().bytes().count()
    }

    #[test]
    fn powers_of_two_end_at_16_kib() {
        assert_eq!(class(0), 1);
        let mut power = 1;
        while power <= 16 << 10 {
            assert_eq!(class(power), power);
            if power > 2 {
                assert_eq!(class(power - 1), power);
                assert_eq!(class(power / 2 + 1), power);
            }
            power *= 2;
        }
    }

    #[test]
    fn steps_of_16_kib_follow() {
        for step in 1..2000u64 {
            let edge = step * (16 << 10);
            assert_eq!(class(edge), edge.next_power_of_two().min(edge), "an edge is its own class");
            assert_eq!(class(edge + 1), edge + (16 << 10), "one byte more is the next step");
        }
    }

    #[test]
    fn absurd_sizes_are_errors() {
        assert_eq!(SizeClass::of(Bytes::MAX), Err(Overflow));
        let last = u64::MAX / (16 << 10) * (16 << 10);
        assert_eq!(class(last), last);
        assert_eq!(SizeClass::of(Bytes::new(last + 1)), Err(Overflow));
    }
}
