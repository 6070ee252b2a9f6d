//! From a hash to the entry, for blocks that are not the only one behind theirs: open addressing in one array of words, so that a probe is one cache line, nothing is allocated
//! after construction, and removal leaves no marks that slow later probes.

use crate::backend::{books, fetch};

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// An empty place. A stored word has the entry's number, which is never [`NONE`], in its lower half.
const EMPTY: u64 = u64::MAX;

/// The upper half of a hash in the upper half of each word, the entry in the lower.
pub(super) struct Index {
    words: Box<[u64]>,
    shift: u32,
}

impl Index {
    /// Room for `entries`, at most half full, if there is memory for it.
    pub(super) fn new(entries: usize) -> Option<Self> {
        let places = entries.max(8).checked_mul(2)?.checked_next_power_of_two()?;
        Some(Index { words: books(places, || EMPTY)?, shift: 64 - places.trailing_zeros() })
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    /// Begins to read where an entry with this hash is.
    pub(super) fn fetch(&self, hash: u64) {
        fetch(&self.words[self.home(hash)]);
    }

    fn next(&self, place: usize) -> usize {
        (place + 1) & (self.words.len() - 1)
    }

    /// The entry with this hash that `is_it` says is the one.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut place = self.home(hash);
        loop {
            let word = self.words[place];
            if word == EMPTY {
                return None;
            }
            if word >> 32 == hash >> 32 && is_it(word as u32) {
                return Some(word as u32);
            }
            place = self.next(place);
        }
    }

    /// Adds an entry that is not there.
    pub(super) fn insert(&mut self, hash: u64, entry: u32) {
        let mut place = self.home(hash);
        while self.words[place] != EMPTY {
            place = self.next(place);
        }
        self.words[place] = (hash >> 32) << 32 | u64::from(entry);
    }

    /// Removes an entry, and moves what follows up, so that no probe passes a gap.
    pub(super) fn remove(&mut self, hash: u64, entry: u32) {
        let mut gap = self.home(hash);
        while self.words[gap] as u32 != entry {
            if self.words[gap] == EMPTY {
                return;
            }
            gap = self.next(gap);
        }
        let mask = self.words.len() - 1;
        let mut place = gap;
        loop {
            place = self.next(place);
            let word = self.words[place];
            if word == EMPTY {
                break;
            }
            // It may move into the gap unless its home lies behind the gap. The upper half of the hash is all that `home` reads.
            let from_home = place.wrapping_sub(self.home(word)) & mask;
            if from_home >= place.wrapping_sub(gap) & mask {
                self.words[gap] = word;
                gap = place;
            }
        }
        self.words[gap] = EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use super::Index;
    use std::collections::HashMap;

    #[test]
    fn it_holds_what_a_map_holds() {
        let mut index = Index::new(64).unwrap();
        let mut model: HashMap<u32, u64> = HashMap::new();
        let mut random = 1u64;
        for round in 0..200_000u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Few homes, so that runs are long and wrap around.
            let (entry, hash) = ((random >> 33) as u32 % 64, (random >> 40 & 7) << 61 | u64::from(round) << 32);
            match model.remove(&entry) {
                Some(hash) => index.remove(hash, entry),
                None => {
                    index.insert(hash, entry);
                    model.insert(entry, hash);
                }
            }
            for (entry, hash) in &model {
                assert_eq!(index.find(*hash, |found| found == *entry), Some(*entry));
            }
            assert_eq!(index.find(hash, |found| !model.contains_key(&found)), None);
            assert_eq!(index.words.iter().filter(|word| **word != super::EMPTY).count(), model.len());
        }
    }
}
