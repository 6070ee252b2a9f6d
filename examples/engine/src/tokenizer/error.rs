//! Why a tokenizer cannot be built.

use memtier_model::MetadataError;
use thiserror::Error;

use super::chat::ChatError;

/// Why a tokenizer cannot be built from a file's metadata.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A key is missing or has the wrong type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A tokenizer model that is not one of those here.
    #[error("tokenizer.ggml.model is \"{found}\"; supported: gpt2 (byte-level BPE), llama (SentencePiece merging)")]
    UnknownModel {
        /// The model.
        found: String,
    },
    /// A pre-tokenizer that is not one of those here.
    #[error("tokenizer.ggml.pre is \"{found}\"; supported: {supported}")]
    UnknownPre {
        /// The pre-tokenizer.
        found: String,
        /// Those that are known.
        supported: String,
    },
    /// An array that should have one element a token.
    #[error("{key} has {found} elements for {tokens} tokens: the file is damaged, convert the model again")]
    Length {
        /// The array's key.
        key: &'static str,
        /// Its elements.
        found: usize,
        /// The tokens.
        tokens: usize,
    },
    /// An array whose elements have the wrong type.
    #[error("{key} must be an array of {wanted}: convert the model again")]
    Elements {
        /// The array's key.
        key: &'static str,
        /// What its elements should be.
        wanted: &'static str,
    },
    /// More tokens, or more bytes of tokens, than 32-bit ids can name.
    #[error("{key} is larger than 4 GiB or 2^32 elements, which no tokenizer is")]
    TooLarge {
        /// The array's key.
        key: &'static str,
    },
    /// A token id that is not in the vocabulary.
    #[error("{key} is {id}, beyond the {tokens} tokens of the vocabulary: the file is damaged")]
    NoSuchToken {
        /// The key that names the token.
        key: &'static str,
        /// The id.
        id: u32,
        /// The tokens.
        tokens: usize,
    },
    /// The chat template does not parse.
    #[error("tokenizer.chat_template: {0}")]
    Chat(#[from] ChatError),
}
