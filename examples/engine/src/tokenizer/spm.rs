//! SentencePiece-style merging by score, `tokenizer.ggml.model` `llama` (Llama 1 and 2, Gemma).

use std::cmp::Ordering;

use memtier_model::Metadata;
use memtier_model::gguf::Value;

use super::error::TokenizerError;
use super::merge::{chars, merge};
use super::vocab::Vocab;

#[derive(Debug)]
pub(super) struct Spm {
    scores: Vec<f32>,
    add_space_prefix: bool,
}

const SCORES: &str = "tokenizer.ggml.scores";
/// What stands for a space within tokens: U+2581.
const SPACE: &str = "\u{2581}";

impl Spm {
    pub(super) fn from_metadata(metadata: Metadata<'_>, vocab: &Vocab) -> Result<Spm, TokenizerError> {
        let scores = metadata
            .array(SCORES)?
            .iter()
            .map(|value| match value {
                Value::F32(score) => Some(score),
                _ => None,
            })
            .collect::<Option<Vec<f32>>>()
            .ok_or(TokenizerError::Elements { key: SCORES, wanted: "f32" })?;
        if scores.len() != vocab.len() {
            return Err(TokenizerError::Length { key: SCORES, found: scores.len(), tokens: vocab.len() });
        }
        let add_space_prefix = metadata.optional("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        Ok(Spm { scores, add_space_prefix })
    }

    /// Encodes a text that begins a sequence or follows a special token (`after_token`), or follows neither.
    pub(super) fn encode(&self, text: &str, after_token: bool, vocab: &Vocab, ids: &mut Vec<u32>) {
        let mut escaped = String::with_capacity(text.len() + SPACE.len());
        if self.add_space_prefix && after_token {
            escaped += SPACE;
        }
        text.split_inclusive(' ').for_each(|part| match part.strip_suffix(' ') {
            Some(word) => escaped.extend([word, SPACE]),
            None => escaped += part,
        });

        let bytes = escaped.as_bytes();
        let score = |start: usize, _middle: usize, end: usize| {
            let id = vocab.find(&bytes[start..end])?;
            self.scores.get(id as usize).copied().map(Score)
        };
        for piece in merge(chars(&escaped), score) {
            let text = &bytes[piece.start..piece.start + piece.len];
            match vocab.find(text) {
                Some(id) => ids.push(id),
                None => ids.extend(text.iter().filter_map(|&byte| byte_token(byte, vocab))),
            }
        }
    }
}

/// The token for a byte of a character that has none of its own.
fn byte_token(byte: u8, vocab: &Vocab) -> Option<u32> {
    vocab.find(format!("<0x{byte:02X}>").as_bytes()).or_else(|| vocab.find(&[byte])).or(vocab.unknown)
}

/// The byte of a byte token's text, `<0x0A>`.
pub(super) fn byte_of(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// A token's text with its spaces.
pub(super) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        match rest.strip_prefix(SPACE.as_bytes()) {
            Some(after) => {
                bytes.push(b' ');
                rest = after;
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    bytes
}

/// A score, in an order that is total whatever the file holds.
#[derive(PartialEq)]
struct Score(f32);

impl Eq for Score {}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        // -0 and 0 are one score, which total_cmp alone would tell apart.
        (self.0 + 0.0).total_cmp(&(other.0 + 0.0))
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_spaces_come_back() {
        assert_eq!(byte_of(b"<0x0A>"), Some(10));
        assert_eq!(byte_of(b"<0xZZ>"), None);
        assert_eq!(unescape("\u{2581}a\u{2581}\u{2581}".as_bytes()), b" a  ");
    }
}
