//! Byte-level BPE, `tokenizer.ggml.model` `gpt2`.

use std::cmp::Reverse;

use memtier_model::Metadata;

use super::byte_alphabet;
use super::error::TokenizerError;
use super::merge::{chars, merge};
use super::pretokenize::{Pre, Splitter};
use super::table::{Keep, TextTable};
use super::vocab::Vocab;

#[derive(Debug)]
pub(super) struct Bpe {
    /// `left right`, as the file writes merges; the id is the rank. The alphabet has no space, so a pair is one text.
    merges: TextTable,
    splitter: Splitter,
    whole_words: bool,
}

const MERGES: &str = "tokenizer.ggml.merges";

impl Bpe {
    pub(super) fn from_metadata(metadata: Metadata<'_>) -> Result<Bpe, TokenizerError> {
        let pre = Pre::from_metadata(metadata)?;
        let list = metadata.array(MERGES)?;
        let list = list.strings().ok_or(TokenizerError::Elements { key: MERGES, wanted: "strings" })?;
        let mut merges = TextTable::default();
        for pair in list {
            merges.push(pair, Keep::First).ok_or(TokenizerError::TooLarge { key: MERGES })?;
        }
        Ok(Bpe { merges, splitter: pre.compile(), whole_words: pre.whole_words() })
    }

    pub(super) fn encode(&self, text: &str, vocab: &Vocab, ids: &mut Vec<u32>) {
        for word in self.splitter.split(text) {
            self.encode_word(&byte_alphabet::encode(&text.as_bytes()[word]), vocab, ids);
        }
    }

    fn encode_word(&self, word: &str, vocab: &Vocab, ids: &mut Vec<u32>) {
        if self.whole_words
            && let Some(id) = vocab.find(word.as_bytes())
        {
            ids.push(id);
            return;
        }
        let mut pair = Vec::new();
        let rank = |start: usize, middle: usize, end: usize| {
            pair.clear();
            pair.extend_from_slice(&word.as_bytes()[start..middle]);
            pair.push(b' ');
            pair.extend_from_slice(&word.as_bytes()[middle..end]);
            self.merges.find(&pair).map(Reverse)
        };
        for piece in merge(chars(word), rank) {
            let text = &word.as_bytes()[piece.start..piece.start + piece.len];
            match vocab.find(text) {
                Some(id) => ids.push(id),
                // A merge whose result is no token: its bytes that are tokens are kept, as in llama.cpp.
                None => ids.extend(text.chunks(1).filter_map(|byte| vocab.find(byte))),
            }
        }
    }
}
