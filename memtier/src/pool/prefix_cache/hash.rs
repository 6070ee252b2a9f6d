//! The hash that finds a block among several behind one parent.
//!
//! It only finds candidates. What is found is compared as a whole (parent, content, tokens), so a collision costs time and never
//! a wrong block. Its keys are random, so that nobody can choose prompts that collide.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The random keys of one cache.
#[derive(Clone, Copy)]
pub(super) struct Keys([u64; 4]);

/// The halves of the product, folded: every bit of the result depends on every bit of both.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Keys {
    pub(super) fn random() -> Self {
        let state = RandomState::new();
        Keys([1, 2, 3, 4].map(|word: u64| {
            let mut hasher = state.build_hasher();
            hasher.write_u64(word);
            // Odd, so that no word of a prompt is multiplied by zero alone.
            hasher.finish() | 1
        }))
    }

    /// The hash of a block behind entry `parent`. Never zero.
    #[inline]
    pub(super) fn hash(&self, parent: u32, extra: u128, tokens: &[u32]) -> u64 {
        let Keys([a, b, c, d]) = *self;
        let pair = |two: &[u32; 2]| u64::from(two[0]) | u64::from(two[1]) << 32;
        let (fours, rest) = tokens.as_chunks::<4>();
        let (mut sum, mut step) = (0u64, a);
        for four in fours {
            // Independent of each other, so that the multiplications overlap; the step makes their order matter.
            let [low, high] = [[four[0], four[1]], [four[2], four[3]]];
            sum = sum.wrapping_add(fold(pair(&low) ^ step, pair(&high) ^ b));
            step = step.wrapping_add(c);
        }
        for token in rest {
            sum = sum.wrapping_add(fold(u64::from(*token) ^ step, b));
            step = step.wrapping_add(c);
        }
        let extra = if extra == 0 { 0 } else { fold(extra as u64 ^ b, (extra >> 64) as u64 ^ c) };
        fold(sum ^ extra ^ d, u64::from(parent) ^ a) | 1
    }
}

#[cfg(test)]
mod tests {
    use super::Keys;

    #[test]
    fn order_parent_and_content_matter() {
        let keys = Keys::random();
        let tokens: Vec<u32> = (0..16).collect();
        let hash = keys.hash(7, 0, &tokens);
        let mut swapped = tokens.clone();
        swapped.swap(3, 12);
        assert_eq!(hash, keys.hash(7, 0, &tokens));
        for other in [keys.hash(8, 0, &tokens), keys.hash(7, 1, &tokens), keys.hash(7, 0, &swapped)] {
            assert_ne!(hash, other);
        }
        assert_ne!(keys.hash(7, 0, &[1, 2, 3]), keys.hash(7, 0, &[1, 3, 2]));
    }

    #[test]
    fn small_differences_spread() {
        let keys = Keys::random();
        let mut seen = std::collections::HashSet::new();
        for token in 0..4096u32 {
            let mut tokens = [0u32; 16];
            tokens[(token % 16) as usize] = token;
            // The bits that choose a place in the index, and the ones that tell neighbours apart.
            seen.insert((keys.hash(1, 0, &tokens) >> 32) as u32);
        }
        assert!(seen.len() > 4000, "{} of 4096", seen.len());
    }
}
