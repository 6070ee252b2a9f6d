//! Merging of adjacent pieces by priority, which both tokenizer models are.

use std::collections::BinaryHeap;

/// A stretch of text: bytes `start..start + len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: usize,
    pub(super) len: usize,
}

/// Merges adjacent pieces, the pair of the highest priority first and of equal ones the leftmost, until `priority`
/// (asked with the start, the middle and the end of a pair) offers no pair any more.
///
/// Takes time proportional to the text's length times its logarithm: each merge ends one piece and offers two pairs.
pub(super) fn merge<P: Ord>(
    pieces: impl Iterator<Item = Piece>,
    mut priority: impl FnMut(usize, usize, usize) -> Option<P>,
) -> impl Iterator<Item = Piece> {
    let mut links: Vec<Link> = Vec::new();
    for piece in pieces {
        let at = links.len();
        links.push(Link { piece, previous: at.checked_sub(1), next: Some(at + 1) });
    }
    if let Some(last) = links.last_mut() {
        last.next = None;
    }

    let mut pairs = BinaryHeap::new();
    let mut offer = |pairs: &mut BinaryHeap<Pair<P>>, links: &[Link], left: usize| {
        let Some(right) = links[left].next else { return };
        let (a, b) = (links[left].piece, links[right].piece);
        if let Some(priority) = priority(a.start, b.start, b.start + b.len) {
            pairs.push(Pair { priority, left, right, len: a.len + b.len });
        }
    };
    for left in 0..links.len() {
        offer(&mut pairs, &links, left);
    }
    while let Some(Pair { left, right, len, .. }) = pairs.pop() {
        let (a, b) = (links[left].piece, links[right].piece);
        // Either has been merged since the pair was offered.
        if a.len == 0 || b.len == 0 || a.len + b.len != len {
            continue;
        }
        links[left].piece.len = len;
        links[right].piece.len = 0;
        let after = links[right].next;
        links[left].next = after;
        if let Some(after) = after {
            links[after].previous = Some(left);
        }
        if let Some(before) = links[left].previous {
            offer(&mut pairs, &links, before);
        }
        offer(&mut pairs, &links, left);
    }
    links.into_iter().map(|link| link.piece).filter(|piece| piece.len > 0)
}

struct Link {
    piece: Piece,
    previous: Option<usize>,
    next: Option<usize>,
}

struct Pair<P> {
    priority: P,
    left: usize,
    right: usize,
    /// Bytes of both when they were offered, by which a pair that is no longer one is known.
    len: usize,
}

impl<P: Ord> Ord for Pair<P> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.priority.cmp(&other.priority).then(other.left.cmp(&self.left))
    }
}

impl<P: Ord> PartialOrd for Pair<P> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<P: Ord> PartialEq for Pair<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<P: Ord> Eq for Pair<P> {}

/// The characters of a text as pieces.
pub(super) fn chars(text: &str) -> impl Iterator<Item = Piece> {
    text.char_indices().map(|(start, char)| Piece { start, len: char.len_utf8() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(text: &str, known: &[&str]) -> Vec<String> {
        let rank = |start, _, end| known.iter().position(|&pair| pair == &text[start..end]).map(std::cmp::Reverse);
        merge(chars(text), rank).map(|piece| text[piece.start..][..piece.len].to_owned()).collect()
    }

    #[test]
    fn the_best_pair_goes_first_and_of_equal_ones_the_leftmost() {
        assert_eq!(merged("aaa", &["aa"]), ["aa", "a"]);
        assert_eq!(merged("abc", &["bc", "ab"]), ["a", "bc"]);
        assert_eq!(merged("abcabc", &["ab", "abc", "abcabc"]), ["abcabc"]);
        assert_eq!(merged("", &["aa"]), [""; 0]);
        assert_eq!(merged("xay", &["ay", "xay"]), ["xay"]);
    }
}
