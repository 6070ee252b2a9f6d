//! How byte-level BPE splits a text into words before it merges within them.

use std::ops::Range;

use fancy_regex::Regex;
use memtier_model::Metadata;

use super::error::TokenizerError;

/// A pre-tokenizer: expressions that are applied one after the other, each within the pieces of the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pre(&'static Row);

#[derive(Debug)]
struct Row {
    /// The names in `tokenizer.ggml.pre`.
    names: &'static [&'static str],
    expressions: &'static [&'static str],
    /// Whether a word that is a token stays whole, whatever the merges would make of it.
    whole_words: bool,
    adds_bos: bool,
}

/// GPT-2's words. The last alternative takes what the look-ahead leaves: one whitespace before a word.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3's: contractions in any case, up to three digits, line breaks apart.
const LLAMA3: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2's: as Llama 3's, digits one by one.
const QWEN2: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const TABLE: [Row; 5] = [
    Row {
        names: &["default"],
        expressions: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        whole_words: false,
        adds_bos: false,
    },
    Row {
        names: &["gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe"],
        expressions: &[GPT2],
        whole_words: false,
        adds_bos: false,
    },
    Row {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"],
        expressions: &[r"\p{N}", GPT2],
        whole_words: false,
        adds_bos: false,
    },
    Row { names: &["llama-bpe", "llama3", "llama-v3"], expressions: &[LLAMA3], whole_words: true, adds_bos: true },
    Row { names: &["qwen2", "deepseek-r1-qwen"], expressions: &[QWEN2], whole_words: false, adds_bos: false },
];

impl Pre {
    /// The pre-tokenizer that a file names; files without the key are of the time when there was only the default.
    pub(super) fn from_metadata(metadata: Metadata<'_>) -> Result<Pre, TokenizerError> {
        let name = metadata.optional::<&str>("tokenizer.ggml.pre")?.unwrap_or("default");
        TABLE.iter().find(|row| row.names.contains(&name)).map(Pre).ok_or_else(|| TokenizerError::UnknownPre {
            found: name.to_owned(),
            supported: TABLE.iter().flat_map(|row| row.names).copied().collect::<Vec<_>>().join(", "),
        })
    }

    pub(super) fn whole_words(self) -> bool {
        self.0.whole_words
    }

    pub(super) fn adds_bos(self) -> bool {
        self.0.adds_bos
    }

    pub(super) fn compile(self) -> Splitter {
        // The expressions are constants, and a test compiles each of them.
        Splitter(self.0.expressions.iter().filter_map(|expression| Regex::new(expression).ok()).collect())
    }
}

/// The compiled expressions of a pre-tokenizer.
#[derive(Debug)]
pub(super) struct Splitter(Vec<Regex>);

impl Splitter {
    /// Splits a text into words, which together are the text.
    pub(super) fn split(&self, text: &str) -> Vec<Range<usize>> {
        let mut words = Vec::new();
        if !text.is_empty() {
            words.push(0..text.len());
        }
        for regex in &self.0 {
            let mut pieces = Vec::with_capacity(words.len());
            for word in words {
                split_one(regex, text, word, &mut pieces);
            }
            words = pieces;
        }
        words
    }
}

/// Splits one word into the matches of an expression and what is between them. The expression sees the word only, so
/// a look-ahead at its end sees the end of the text.
fn split_one(regex: &Regex, text: &str, word: Range<usize>, pieces: &mut Vec<Range<usize>>) {
    let mut done = word.start;
    // A match can only fail by running out of the engine's step limit; the rest then stays one piece.
    for found in regex.find_iter(&text[word.clone()]).map_while(Result::ok) {
        let (start, end) = (word.start + found.start(), word.start + found.end());
        if start > done {
            pieces.push(done..start);
        }
        if end > start {
            pieces.push(start..end);
        }
        done = end;
    }
    if done < word.end {
        pieces.push(done..word.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let row = TABLE.iter().find(|row| row.names.contains(&name)).unwrap();
        Pre(row).compile().split(text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn every_expression_compiles() {
        for row in &TABLE {
            assert_eq!(Pre(row).compile().0.len(), row.expressions.len(), "{:?}", row.names);
        }
    }

    #[test]
    fn words_are_split_as_each_name_says() {
        let text = "Don't  buy 1234\n\n x";
        assert_eq!(words("gpt-2", text), ["Don", "'t", " ", " buy", " 1234", "\n\n", " x"]);
        assert_eq!(words("smollm", text), ["Don", "'t", " ", " buy", " ", "1", "2", "3", "4", "\n\n", " x"]);
        assert_eq!(words("llama-bpe", text), ["Don", "'t", " ", " buy", " ", "123", "4", "\n\n", " x"]);
        assert_eq!(words("qwen2", text), ["Don", "'t", " ", " buy", " ", "1", "2", "3", "4", "\n\n", " x"]);
    }

    #[test]
    fn words_together_are_the_text() {
        for row in &TABLE {
            for text in ["", " ", "a", "\u{301}x \u{3000}\t1\u{664}\u{4e2d}\u{1f600}\u{200d}", "--- \r\n\r\n'S 'll"] {
                assert_eq!(words(row.names[0], text).concat(), text);
            }
        }
    }
}
