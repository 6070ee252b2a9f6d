//! What requests say. A symbol is a token and perhaps an image in its place: the token is its last bit, the image the others, and zero is none.

use memtier::{Content, Digest, Extra, Root};

use super::PER_BLOCK;

/// Symbols as the cache is told of them.
pub(super) struct Prompt {
    tokens: Vec<u32>,
    extras: Vec<Extra>,
}

impl Prompt {
    pub(super) fn new(symbols: &[u32]) -> Self {
        let images = symbols.iter().enumerate().filter(|(_, symbol)| **symbol > 1);
        let extras = images.map(|(token, symbol)| Extra { token, digest: u128::from(symbol >> 1) }).collect();
        Prompt { tokens: symbols.iter().map(|symbol| symbol & 1).collect(), extras }
    }

    pub(super) fn content(&self, root: Root) -> Content<'_> {
        Content { root, tokens: &self.tokens, extras: &self.extras }
    }

    /// The digest of its last full block.
    pub(super) fn digest(&self, root: Digest) -> Digest {
        self.tokens.chunks_exact(PER_BLOCK).enumerate().fold(root, |parent, (index, tokens)| {
            parent.child(Content::extra_of(&self.extras, index * PER_BLOCK, PER_BLOCK), tokens)
        })
    }
}

/// A prompt that shares a random part with others: a block is one of two, so prefixes meet. Some differ by an image alone.
pub(super) fn random(length: usize, bits: u64) -> Vec<u32> {
    let symbol = |index: usize| {
        let block = index / PER_BLOCK;
        match ((bits >> (block % 32) & 1) as u32, block % 5) {
            (1, 2) if index % PER_BLOCK == 1 => 3,
            (_, 2) => 1,
            (bit, _) => bit,
        }
    };
    (0..length).map(symbol).collect()
}

/// One more of an answer.
pub(super) fn symbol(random: u32) -> u32 {
    if random.is_multiple_of(16) { 3 } else { random & 1 }
}
