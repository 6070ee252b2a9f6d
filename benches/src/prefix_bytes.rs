//! What memory takes, whatever the books are: the bytes that a prompt of the cache has, read or written in one sweep.

use std::hint::black_box;

use crate::prefix::{Contender, PROMPT};
use crate::prefix_engine::PER_BLOCK;

/// What an exact cache keeps of a block besides its tokens: 32 bytes.
type Book = [u64; 4];

/// The tokens and the books of as many blocks as a cache has, prompt after prompt.
#[derive(Debug)]
pub(crate) struct Bytes {
    tokens: Vec<u32>,
    books: Vec<Book>,
    /// Prompts in it.
    prompts: usize,
    /// The prompt whose books are next.
    at: usize,
}

impl Bytes {
    pub(crate) fn new(blocks: usize) -> Self {
        let (tokens, books) = (vec![1; blocks * PER_BLOCK], vec![[1; 4]; blocks]);
        Bytes { tokens, books, prompts: blocks / PROMPT, at: 0 }
    }

    /// The tokens in the place of a prompt, which begins with its number.
    fn place(&mut self, tokens: &[u32]) -> &mut [u32] {
        let prompt = (tokens[0] as usize - 1) % self.prompts;
        &mut self.tokens[prompt * PROMPT * PER_BLOCK..][..PROMPT * PER_BLOCK]
    }
}

impl Contender for Bytes {
    /// Tokens are compared.
    fn lookup(&mut self, tokens: &[u32]) {
        assert!(black_box(&*self.place(tokens)) == tokens);
    }

    /// Books are read and written, as many as are asked for at once.
    fn acquire(&mut self, at_once: usize) {
        for books in self.books[self.at * PROMPT..][..PROMPT].chunks_mut(at_once) {
            black_box(books).iter_mut().for_each(|book| book[0] += book[1]);
        }
        self.at = (self.at + 1) % self.prompts;
    }

    fn write(&mut self) {}

    /// Tokens are copied.
    fn publish(&mut self, tokens: &[u32]) {
        black_box(self.place(tokens)).copy_from_slice(tokens);
    }

    fn end(&mut self) {}
}
