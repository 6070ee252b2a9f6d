//! Many short texts in one buffer, found by their bytes.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Texts with the ids 0, 1, 2, … in one allocation. A vocabulary of a quarter million tokens takes a few megabytes
/// and three allocations, rather than one each.
#[derive(Debug, Default)]
pub(super) struct TextTable {
    bytes: Vec<u8>,
    /// Where each text ends.
    ends: Vec<u32>,
    index: HashTable<u32>,
    hasher: RandomState,
}

/// Which of two equal texts is found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    First,
    Last,
}

impl TextTable {
    /// Adds a text with the next id. `None` when the table is full.
    pub(super) fn push(&mut self, text: &[u8], keep: Keep) -> Option<()> {
        let id = u32::try_from(self.ends.len()).ok()?;
        let end = u32::try_from(self.bytes.len() + text.len()).ok()?;
        self.bytes.extend_from_slice(text);
        self.ends.push(end);
        let (bytes, ends, hasher) = (&self.bytes, &self.ends, &self.hasher);
        let rehash = |&id: &u32| hasher.hash_one(slice(bytes, ends, id));
        match self.index.entry(hasher.hash_one(text), |&other| slice(bytes, ends, other) == text, rehash) {
            Entry::Occupied(mut found) if keep == Keep::Last => *found.get_mut() = id,
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => drop(free.insert(id)),
        }
        Some(())
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The text with this id.
    pub(super) fn get(&self, id: u32) -> Option<&[u8]> {
        ((id as usize) < self.len()).then(|| slice(&self.bytes, &self.ends, id))
    }

    /// The id of this text.
    pub(super) fn find(&self, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        self.index.find(hash, |&id| slice(&self.bytes, &self.ends, id) == text).copied()
    }
}

/// The text of an id that is in the table.
fn slice<'t>(bytes: &'t [u8], ends: &[u32], id: u32) -> &'t [u8] {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] as usize };
    &bytes[start..ends[id] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_by_bytes_and_id_and_of_equal_ones_the_one_asked_for() {
        for (keep, expected) in [(Keep::First, 0), (Keep::Last, 2)] {
            let mut table = TextTable::default();
            for text in ["a", "", "a", "bc"] {
                table.push(text.as_bytes(), keep).unwrap();
            }
            assert_eq!(table.find(b"a"), Some(expected));
            assert_eq!(table.find(b""), Some(1));
            assert_eq!(table.find(b"b"), None);
            assert_eq!((table.get(3), table.get(4)), (Some(&b"bc"[..]), None));
        }
    }
}
