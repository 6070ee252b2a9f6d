//! Tokenizers from a GGUF file's own metadata: byte-level BPE (`gpt2`) and SentencePiece-style merging (`llama`),
//! with the token ids that llama.cpp gives for the same text.
//!
//! Both models merge adjacent pieces by a priority until none can be merged; `merge.rs` does that once for both. They
//! are our own rather than the `tokenizers` crate's because what must be equal is llama.cpp: its partition of text by
//! special tokens, its pre-tokenizer expressions and its byte fall-backs differ from that crate's in places, GGUF's
//! `llama` vocabularies carry scores and no merges (which that crate would need), and its dependencies are many times
//! larger. The expressions run on `fancy-regex`, for their look-ahead; chat templates run on `minijinja`.

mod bpe;
mod byte_alphabet;
mod chat;
mod decode;
mod error;
mod merge;
mod pretokenize;
mod special;
mod spm;
mod table;
mod vocab;

pub use chat::{ChatError, ChatTemplate, Message};
pub use decode::Decoder;
pub use error::TokenizerError;
pub use vocab::TokenKind;

use memtier_model::Metadata;

use bpe::Bpe;
use special::{Fragment, SpecialTokens};
use spm::Spm;
use vocab::Vocab;

/// A tokenizer. Token ids are rows of the model's embedding.
///
/// ```no_run
/// use memtier_engine::tokenizer::{Special, Tokenizer};
/// let model = memtier_model::Gguf::open("model.gguf")?;
/// let tokenizer = Tokenizer::from_metadata(model.metadata())?;
/// let ids = tokenizer.encode_prompt("The capital of France is");
/// assert_eq!(tokenizer.decode(&ids), "The capital of France is");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    special: SpecialTokens,
    model: Model,
    chat_template: Option<ChatTemplate>,
}

#[derive(Debug)]
enum Model {
    Bpe(Box<Bpe>),
    Spm(Spm),
}

/// What to do with the text of a control token, such as `<|im_end|>`, in what is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// It is the token: for templates and prompts that their author wrote.
    Parse,
    /// It is text like any other: for what a stranger wrote.
    Plain,
}

impl Tokenizer {
    /// Builds the tokenizer that a file's metadata describes.
    ///
    /// # Errors
    /// [`TokenizerError`]: keys that are missing or wrong, arrays that do not belong together, a model or a
    /// pre-tokenizer that is not known here, or a chat template that does not parse.
    pub fn from_metadata(metadata: Metadata<'_>) -> Result<Tokenizer, TokenizerError> {
        let vocab = Vocab::from_metadata(metadata)?;
        let model = match metadata.str("tokenizer.ggml.model")? {
            "gpt2" => Model::Bpe(Box::new(Bpe::from_metadata(metadata)?)),
            "llama" => Model::Spm(Spm::from_metadata(metadata, &vocab)?),
            other => return Err(TokenizerError::UnknownModel { found: other.to_owned() }),
        };
        let special = SpecialTokens::new(&vocab);
        let chat_template = ChatTemplate::of(metadata, &vocab)?;
        Ok(Tokenizer { vocab, special, model, chat_template })
    }

    /// Encodes text. `add_special` adds the tokens that the model wants around a text: for most, BOS before it.
    pub fn encode(&self, text: &str, special: Special, add_special: bool) -> Vec<u32> {
        let mut ids = Vec::new();
        ids.extend(self.vocab.bos.filter(|_| add_special && self.vocab.add_bos));
        // SentencePiece puts a space before words, also before the first of a text and the first after a token.
        let mut after_token = true;
        for fragment in self.special.split(text, special) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => match &self.model {
                    Model::Bpe(bpe) => bpe.encode(text, &self.vocab, &mut ids),
                    Model::Spm(spm) => spm.encode(text, after_token, &self.vocab, &mut ids),
                },
            }
            after_token = matches!(fragment, Fragment::Token(_));
        }
        ids.extend(self.vocab.eos.filter(|_| add_special && self.vocab.add_eos));
        ids
    }

    /// Encodes a prompt as llama.cpp's server does: with BOS where the model wants it, and control tokens read.
    pub fn encode_prompt(&self, text: &str) -> Vec<u32> {
        self.encode(text, Special::Parse, true)
    }

    /// The bytes that a token stands for; control tokens are shown only when `show_control`. A token can be a part of
    /// a character: use a [`Decoder`] to get text.
    pub fn piece(&self, id: u32, show_control: bool) -> Vec<u8> {
        let Some((text, kind)) = self.vocab.token(id) else { return Vec::new() };
        match (kind, &self.model) {
            (TokenKind::Control | TokenKind::Unknown, _) if !show_control => Vec::new(),
            (TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined, _) => text.to_owned(),
            (TokenKind::Normal, Model::Bpe(_)) => byte_alphabet::decode(text),
            (TokenKind::Normal, Model::Spm(_)) => spm::unescape(text),
            (TokenKind::Byte, Model::Spm(_)) => spm::byte_of(text).into_iter().collect(),
            (TokenKind::Byte | TokenKind::Unused, _) => Vec::new(),
        }
    }

    /// The text of a sequence; control tokens are left out, and what is no UTF-8 becomes U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut decoder = self.decoder();
        let mut text: String = ids.iter().map(|&id| decoder.push(id)).collect();
        text += &decoder.finish();
        text
    }

    /// A decoder for tokens that arrive one at a time.
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder::new(self)
    }

    /// The number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.vocab.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.vocab.eos
    }

    /// The token that ends a turn of a chat.
    pub fn eot(&self) -> Option<u32> {
        self.vocab.eot
    }

    /// Whether generation ends with this token: EOS, EOT, and others that files name in various ways.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.vocab.end_of_generation.contains(&id)
    }

    /// All tokens that end generation, in ascending order.
    pub fn end_of_generation(&self) -> impl Iterator<Item = u32> + '_ {
        self.vocab.end_of_generation.iter().copied()
    }

    /// Whether a text gets BOS before it.
    pub fn adds_bos(&self) -> bool {
        self.vocab.add_bos && self.vocab.bos.is_some()
    }

    /// The id of the token with exactly this text (in the file's spelling, before any decoding).
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.vocab.find(text.as_bytes())
    }

    /// What kind of token this is, or `None` beyond the vocabulary.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.vocab.token(id).map(|token| token.1)
    }

    /// The chat template: the file's own, or the built-in one that its turn tokens call for.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.chat_template.as_ref()
    }
}
