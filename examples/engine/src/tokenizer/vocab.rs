//! The vocabulary: texts, kinds, and the tokens with a role.

use std::collections::BTreeSet;

use memtier_model::Metadata;
use memtier_model::gguf::Array;

use super::error::TokenizerError;
use super::pretokenize::Pre;
use super::table::{Keep, TextTable};

/// What kind of token this is, as GGUF numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// Text.
    Normal,
    /// What stands for text that has no token.
    Unknown,
    /// Has a meaning to the model and no text: turns, beginnings, ends.
    Control,
    /// Text that is always one token, whatever merging would make of it.
    UserDefined,
    /// Reserved.
    Unused,
    /// One byte, for text that has no token.
    Byte,
}

impl TokenKind {
    fn from_number(number: i128) -> TokenKind {
        match number {
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => TokenKind::Normal,
        }
    }
}

#[derive(Debug)]
pub(super) struct Vocab {
    texts: TextTable,
    kinds: Vec<TokenKind>,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) eot: Option<u32>,
    pub(super) unknown: Option<u32>,
    pub(super) add_bos: bool,
    pub(super) add_eos: bool,
    pub(super) end_of_generation: BTreeSet<u32>,
}

/// Texts of tokens that end a turn, the likelier first. Files seldom name theirs.
const END_OF_TURN: [&str; 10] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
];

/// Texts of further tokens that end generation: ends of messages and of texts, and what separates files where a model
/// was trained on repositories.
const END_OF_GENERATION: [&str; 15] = [
    "<|eom_id|>",
    "</s>",
    "[EOS]",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_utterance>",
    "<|tool_response>",
    "<|fim_pad|>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

const TOKENS: &str = "tokenizer.ggml.tokens";
const KINDS: &str = "tokenizer.ggml.token_type";

impl Vocab {
    pub(super) fn from_metadata(metadata: Metadata<'_>) -> Result<Vocab, TokenizerError> {
        let tokens = metadata.array(TOKENS)?;
        let tokens = tokens.strings().ok_or(TokenizerError::Elements { key: TOKENS, wanted: "strings" })?;
        let mut texts = TextTable::default();
        for text in tokens {
            texts.push(text, Keep::Last).ok_or(TokenizerError::TooLarge { key: TOKENS })?;
        }
        let mut kinds = match metadata.optional::<Array<'_>>(KINDS)? {
            None => vec![TokenKind::Normal; texts.len()],
            Some(array) => kinds(array)?,
        };
        if kinds.len() != texts.len() {
            return Err(TokenizerError::Length { key: KINDS, found: kinds.len(), tokens: texts.len() });
        }

        let role = |key, default: Option<u32>| -> Result<Option<u32>, TokenizerError> {
            let Some(id) = metadata.optional::<u32>(key)? else {
                return Ok(default.filter(|&id| (id as usize) < texts.len()));
            };
            if id as usize >= texts.len() {
                return Err(TokenizerError::NoSuchToken { key, id, tokens: texts.len() });
            }
            Ok(Some(id))
        };
        let defaults = Defaults::of(metadata)?;
        let bos = role("tokenizer.ggml.bos_token_id", Some(defaults.bos))?;
        let eos = role("tokenizer.ggml.eos_token_id", Some(defaults.eos))?;
        let unknown = role("tokenizer.ggml.unknown_token_id", defaults.unknown)?;
        let find = |text: &&str| texts.find(text.as_bytes());
        let eot = role("tokenizer.ggml.eot_token_id", END_OF_TURN.iter().find_map(find))?;
        let eom = role("tokenizer.ggml.eom_token_id", None)?;

        let named: BTreeSet<u32> = END_OF_TURN.iter().chain(&END_OF_GENERATION).filter_map(find).collect();
        // Converters have marked some of these as text, which nobody wants to see; llama.cpp corrects them too.
        for &id in &named {
            kinds[id as usize] = TokenKind::Control;
        }
        let end_of_generation = named.into_iter().chain([eos, eot, eom].into_iter().flatten()).collect();
        Ok(Vocab {
            texts,
            kinds,
            bos,
            eos,
            eot,
            unknown,
            add_bos: metadata.optional("tokenizer.ggml.add_bos_token")?.unwrap_or(defaults.add_bos),
            add_eos: metadata.optional("tokenizer.ggml.add_eos_token")?.unwrap_or(false),
            end_of_generation,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(super) fn find(&self, text: &[u8]) -> Option<u32> {
        self.texts.find(text)
    }

    /// Text and kind of a token.
    pub(super) fn token(&self, id: u32) -> Option<(&[u8], TokenKind)> {
        self.texts.get(id).zip(self.kinds.get(id as usize).copied())
    }

    /// All tokens with their ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &[u8], TokenKind)> {
        (0..self.len() as u32).filter_map(|id| self.token(id).map(|(text, kind)| (id, text, kind)))
    }
}

fn kinds(array: Array<'_>) -> Result<Vec<TokenKind>, TokenizerError> {
    array
        .iter()
        .map(|value| value.as_integer().map(TokenKind::from_number))
        .collect::<Option<_>>()
        .ok_or(TokenizerError::Elements { key: KINDS, wanted: "integers" })
}

/// What holds where a file says nothing, per tokenizer model.
struct Defaults {
    bos: u32,
    eos: u32,
    unknown: Option<u32>,
    add_bos: bool,
}

impl Defaults {
    fn of(metadata: Metadata<'_>) -> Result<Defaults, TokenizerError> {
        Ok(match metadata.str("tokenizer.ggml.model")? {
            "llama" => Defaults { bos: 1, eos: 2, unknown: Some(0), add_bos: true },
            // GPT-2's <|endoftext|>.
            _ => {
                let add_bos = Pre::from_metadata(metadata)?.adds_bos();
                Defaults { bos: 11, eos: 11, unknown: None, add_bos }
            }
        })
    }
}
