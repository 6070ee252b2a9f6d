//! Guesses of what comes next, from what a request has seen: the tokens that followed the last time its latest ones stood there.

use std::ops::Range;

/// How many of the latest tokens must match, the longest first.
const GRAMS: [usize; 2] = [3, 2];

/// Where the guesses stand among `tokens`: at most `most` of them, none if the latest tokens never stood there before.
pub(super) fn lookup(tokens: &[u32], most: usize) -> Range<usize> {
    for gram in GRAMS {
        let Some(before) = tokens.len().checked_sub(gram) else { continue };
        let latest = &tokens[before..];
        if let Some(start) = (0..before).rev().find(|start| &tokens[*start..start + gram] == latest) {
            return start + gram..tokens.len().min(start + gram + most);
        }
    }
    0..0
}

#[cfg(test)]
mod tests {
    use super::lookup;

    #[test]
    fn the_latest_occurrence_of_the_longest_match_goes_on() {
        //             0  1  2  3  4  5  6  7  8  9 10 11
        let tokens = [1, 2, 3, 9, 1, 2, 3, 8, 7, 1, 2, 3];
        assert_eq!(lookup(&tokens, 4), 7..11);
        assert_eq!(lookup(&tokens, 1), 7..8);
        // Two match where three do not.
        assert_eq!(lookup(&[5, 6, 1, 4, 5, 6], 2), 2..4);
        // A repetition guesses itself.
        assert_eq!(lookup(&[7, 7, 7, 7], 3), 3..4);
        assert_eq!(lookup(&[1, 2, 3], 3), 0..0);
        assert_eq!(lookup(&[], 3), 0..0);
    }
}
