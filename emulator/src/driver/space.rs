//! Which addresses the device reaches now: what every access of a kernel and of a copy is compared with.

use std::sync::{Arc, PoisonError, RwLock};

use super::pages::Access;

/// What a range is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Memory of the device.
    Device,
    /// Page-locked memory of the host.
    Host,
}

/// Memory that the device reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) access: Access,
    pub(super) kind: Kind,
}

/// Every range, in the order of addresses, without overlap.
#[derive(Default)]
pub(super) struct Space(RwLock<Arc<Vec<Range>>>);

impl Space {
    fn now(&self) -> Arc<Vec<Range>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Range>)) {
        change(Arc::make_mut(&mut self.0.write().unwrap_or_else(PoisonError::into_inner)));
    }

    /// Adds a range that overlaps no other.
    pub(super) fn add(&self, range: Range) {
        self.change(|ranges| {
            let place = ranges.partition_point(|other| other.start < range.start);
            ranges.insert(place, range);
        });
    }

    /// Removes what starts in `start..end`.
    pub(super) fn remove(&self, start: u64, end: u64) {
        self.change(|ranges| ranges.retain(|range| range.start < start || range.start >= end));
    }

    pub(super) fn clear(&self) {
        self.change(Vec::clear);
    }

    /// The range that holds an address.
    pub(super) fn at(&self, address: u64) -> Option<Range> {
        let ranges = self.now();
        let place = ranges.partition_point(|range| range.end <= address);
        ranges.get(place).filter(|range| range.start <= address).copied()
    }

    /// Whether any byte of `start..end` is in a range of that kind.
    pub(super) fn touches(&self, start: u64, end: u64, kind: Kind) -> bool {
        self.now().iter().any(|range| range.start < end && start < range.end && range.kind == kind)
    }

    /// The memory around `bytes` bytes at `address`: its first address, its end, and whether it may be written. Ranges that follow each
    /// other without a gap, with the same access, are as good as one.
    pub(super) fn around(&self, address: u64, bytes: u64) -> Option<(u64, u64, bool)> {
        let end = address.checked_add(bytes)?;
        let ranges = self.now();
        let place = ranges.partition_point(|range| range.end <= address);
        let Range { start, end: mut until, access, .. } = *ranges.get(place).filter(|range| range.start <= address)?;
        if access == Access::None {
            return None;
        }
        for next in &ranges[place + 1..] {
            if next.start != until || next.access != access {
                break;
            }
            until = next.end;
        }
        (end <= until).then_some((start, until, access == Access::ReadWrite))
    }

    /// Whether the device can read, or write, `bytes` bytes at `address`.
    pub(super) fn reaches(&self, address: u64, bytes: u64, write: bool) -> bool {
        self.around(address, bytes).is_some_and(|(_, _, writable)| writable || !write)
    }
}

impl crate::ptx::Memory for Space {
    fn range(&self, address: u64, bytes: usize) -> Option<(u64, u64, bool)> {
        self.around(address, bytes as u64).map(|(start, end, write)| (start, end - start, write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_is_inside_of_what_is_there_or_refused() {
        let space = Space::default();
        let range = |start, end, access| Range { start, end, access, kind: Kind::Device };
        space.add(range(0x2000, 0x3000, Access::ReadWrite));
        space.add(range(0x1000, 0x2000, Access::Read));
        space.add(range(0x3000, 0x4000, Access::ReadWrite));
        space.add(range(0x8000, 0x9000, Access::None));
        assert!(space.reaches(0x2000, 0x2000, true) && space.reaches(0x2ffc, 8, true));
        assert!(!space.reaches(0x3ffd, 4, true) && !space.reaches(0x4000, 1, false) && !space.reaches(0xfff, 2, false));
        assert!(space.reaches(0x1ff8, 8, false) && !space.reaches(0x1ff8, 8, true));
        assert!(!space.reaches(0x8000, 1, false) && !space.reaches(u64::MAX, 2, false));
        assert_eq!(space.around(0x2004, 4), Some((0x2000, 0x4000, true)));
        space.remove(0x2000, 0x2001);
        assert!(!space.reaches(0x2000, 4, true));
        assert!(space.touches(0x1fff, 0x2500, Kind::Device) && !space.touches(0x2000, 0x2500, Kind::Device));
        assert_eq!(space.at(0x1000).map(|range| range.end), Some(0x2000));
        assert_eq!(space.at(0x2000), None);
    }
}
