//! Which slots of the books are vacant: a bit each, and a bit for each word of those.
//!
//! Neighbours that become vacant are one stretch, whoever had them, so that what is published later finds room in one piece.

/// Bits of a word.
const WORD: usize = u64::BITS as usize;
/// Stretches that are compared for one that fits.
const LOOK: usize = 8;
/// Slots of a stretch that is long enough for everybody.
const LONG: usize = 4096;

pub(super) struct Slots {
    vacant: Box<[u64]>,
    /// Words with a vacant slot.
    words: Box<[u64]>,
    /// Where the next look begins: at what became vacant last.
    cursor: usize,
}

impl Slots {
    /// All of `count` are vacant.
    pub(super) fn new(count: usize) -> Self {
        let words = count.div_ceil(WORD);
        let zeros = |count: usize| vec![0; count].into_boxed_slice();
        let mut slots = Slots { vacant: zeros(words), words: zeros(words.div_ceil(WORD)), cursor: 0 };
        slots.give(0, count);
        slots
    }

    /// Takes vacant slots that follow each other, up to `most`: their first, and how many. Of the next few stretches the shortest that is
    /// long enough, or the longest, so that long ones stay for those who need them.
    pub(super) fn take(&mut self, most: usize) -> Option<(usize, usize)> {
        let mut best = (0, 0);
        let (mut from, mut is_round) = (self.cursor, false);
        for _ in 0..LOOK {
            let first = self.vacant_from(from).filter(|first| !is_round || *first < self.cursor);
            let Some(first) = first else {
                if std::mem::replace(&mut is_round, true) {
                    break;
                }
                from = 0;
                continue;
            };
            let count = self.stretch(first, most.max(LONG));
            let is_better = if best.1 >= most { most <= count && count < best.1 } else { count > best.1 };
            best = if is_better { (first, count) } else { best };
            if count >= LONG || (most..2 * most).contains(&count) {
                break;
            }
            from = first + count;
        }
        let (first, count) = best;
        (count > 0).then(|| (first, self.take_at(first, most)))
    }

    /// Takes the vacant slots from `first` on that follow each other, up to `most`. How many.
    pub(super) fn take_at(&mut self, first: usize, most: usize) -> usize {
        let count = self.stretch(first, most);
        self.mark(first, count, false);
        self.cursor = first + count;
        count
    }

    /// Slots are vacant again.
    pub(super) fn give(&mut self, first: usize, count: usize) {
        self.mark(first, count, true);
        self.cursor = first;
    }

    /// How many vacant slots follow each other from `first` on; of more than `most` only those.
    fn stretch(&self, first: usize, most: usize) -> usize {
        let mut count = 0;
        while count < most {
            let (word, bit) = ((first + count) / WORD, (first + count) % WORD);
            let Some(bits) = self.vacant.get(word) else { break };
            let ones = (bits >> bit).trailing_ones() as usize;
            count += ones;
            if bit + ones < WORD {
                break;
            }
        }
        count.min(most)
    }

    fn mark(&mut self, first: usize, count: usize, vacant: bool) {
        let (mut at, end) = (first, first + count);
        while at < end {
            let (word, bit) = (at / WORD, at % WORD);
            let bits = (end - at).min(WORD - bit);
            let mask = (u64::MAX >> (WORD - bits)) << bit;
            let (known, summary) = (&mut self.vacant[word], &mut self.words[word / WORD]);
            match vacant {
                true => *known |= mask,
                false => *known &= !mask,
            }
            match *known {
                0 => *summary &= !(1 << (word % WORD)),
                _ => *summary |= 1 << (word % WORD),
            }
            at += bits;
        }
    }

    /// The first vacant slot from `from` on.
    fn vacant_from(&self, from: usize) -> Option<usize> {
        let word = from / WORD;
        let rest = self.vacant.get(word)? >> (from % WORD);
        if rest != 0 {
            return Some(from + rest.trailing_zeros() as usize);
        }
        let next = word + 1;
        let first = self.words.get(next / WORD)? >> (next % WORD);
        let word = match first {
            0 => {
                let many = (next / WORD + 1..self.words.len()).find(|many| self.words[*many] != 0)?;
                many * WORD + self.words[many].trailing_zeros() as usize
            }
            first => next + first.trailing_zeros() as usize,
        };
        Some(word * WORD + self.vacant[word].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;

    /// Beside one flag a slot, in every size around a word and a word of words.
    #[test]
    fn stretches_are_what_flags_say() {
        let mut random = 7u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        for count in [1, 63, 64, 65, 200, 64 * 64, 64 * 64 + 1, 3 * 64 * 64 + 70] {
            let mut slots = Slots::new(count);
            let (mut vacant, mut taken) = (vec![true; count], Vec::new());
            for _ in 0..2_000 {
                if next(2) == 0 {
                    let most = 1 + next(150);
                    match slots.take(most) {
                        Some((first, got)) => {
                            assert!(0 < got && got <= most && vacant[first..first + got].iter().all(|is| *is));
                            vacant[first..first + got].fill(false);
                            taken.push((first, got));
                        }
                        None => assert!(vacant.iter().all(|is| !is)),
                    }
                } else if !taken.is_empty() {
                    let (first, got) = taken.swap_remove(next(taken.len()));
                    // The end of it, as an eviction does.
                    let keep = next(got);
                    slots.give(first + keep, got - keep);
                    vacant[first + keep..first + got].fill(true);
                    if keep > 0 {
                        taken.push((first, keep));
                    }
                }
                let bits: Vec<_> = (0..count).map(|slot| slots.vacant[slot / 64] >> (slot % 64) & 1 == 1).collect();
                assert_eq!(bits, vacant);
                let words = slots.vacant.iter().enumerate();
                assert!(words.fold(true, |all, (word, bits)| {
                    all && (slots.words[word / 64] >> (word % 64) & 1 == 1) == (*bits != 0)
                }));
            }
        }
    }

    #[test]
    fn the_stretch_that_fits_is_taken() {
        let mut slots = Slots::new(1000);
        assert_eq!(slots.take(1000), Some((0, 1000)));
        assert_eq!(slots.take(1), None);
        slots.give(900, 8);
        slots.give(700, 100);
        slots.give(200, 50);
        slots.give(150, 50);
        assert_eq!(slots.take(80), Some((150, 80)), "two neighbours are one stretch, and the other one is no better");
        assert_eq!(slots.take(3), Some((900, 3)), "a short one is enough");
        assert_eq!(slots.take(256), Some((700, 100)), "as long as there is");
        assert_eq!(slots.take(256), Some((230, 20)));
        assert_eq!((slots.take_at(10, 4), slots.take_at(903, 9)), (0, 5));
        assert_eq!(slots.take(1), None);
    }
}
