//! Errors, collected so that an author sees all of them at once, and guesses at what was meant.

use std::fmt::Display;

use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Error;

/// The errors of one expansion.
#[derive(Default)]
pub(crate) struct Errors(Vec<Error>);

impl Errors {
    /// An error that marks `tokens`.
    pub(crate) fn mark(&mut self, tokens: impl ToTokens, message: impl Display) {
        self.0.push(Error::new_spanned(tokens, message));
    }

    /// An error at one place.
    pub(crate) fn at(&mut self, span: Span, message: impl Display) {
        self.0.push(Error::new(span, message));
    }

    /// An error of the parser.
    pub(crate) fn push(&mut self, error: Error) {
        self.0.push(error);
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One `compile_error!` for each.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.0.into_iter().map(Error::into_compile_error).collect()
    }
}

/// The entry of `known` that `word` is a misspelling of.
pub(crate) fn closest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    if let Some(same) = known.iter().copied().find(|name| *name == word) {
        return Some(same);
    }
    let folded = word.to_lowercase();
    let of = |name: &&'k str| distance(&folded, &name.to_lowercase());
    let best = known.iter().copied().min_by_key(of)?;
    (of(&best) <= (best.len() / 3).max(1)).then_some(best)
}

/// `; did you mean ..?`, or nothing.
pub(crate) fn did_you_mean(word: &str, known: &[&str]) -> String {
    closest(word, known).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// Tokens as an author would write them: the compiler puts a space between any two.
pub(crate) fn text(tokens: impl ToTokens) -> String {
    let mut text = String::new();
    write(&mut text, tokens.to_token_stream());
    text
}

/// Operators of two signs that stand between spaces.
const PAIRS: [[char; 2]; 8] =
    [['=', '='], ['!', '='], ['<', '='], ['>', '='], ['&', '&'], ['|', '|'], ['-', '>'], ['=', '>']];

fn write(text: &mut String, tokens: TokenStream) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(tree) = tokens.next() {
        match tree {
            TokenTree::Group(group) => {
                let [open, close] = match group.delimiter() {
                    Delimiter::Parenthesis => ["(", ")"],
                    Delimiter::Bracket => ["[", "]"],
                    Delimiter::Brace => ["{ ", " }"],
                    Delimiter::None => ["", ""],
                };
                text.push_str(open);
                write(text, group.stream());
                text.push_str(close);
            }
            TokenTree::Punct(punct) => match punct.as_char() {
                ',' | ';' => {
                    text.push(punct.as_char());
                    if tokens.peek().is_some() {
                        text.push(' ');
                    }
                }
                // `==`, `&&`, `->` and the like.
                sign if punct.spacing() == Spacing::Joint => {
                    let second = tokens.peek().and_then(|next| match next {
                        TokenTree::Punct(next) => Some(next.as_char()),
                        _ => None,
                    });
                    let between = text.ends_with(|last: char| last.is_alphanumeric() || "_)]".contains(last));
                    match second.filter(|second| between && PAIRS.contains(&[sign, *second])) {
                        Some(second) => {
                            tokens.next();
                            text.extend([' ', sign, second, ' ']);
                        }
                        None => text.push(sign),
                    }
                }
                '*' | '+' | '-' | '/' | '%' | '=' | '|' if !text.is_empty() => {
                    if !text.ends_with(|last: char| last.is_ascii_punctuation() && !")]".contains(last) || last == ' ')
                    {
                        text.push(' ');
                    }
                    text.push(punct.as_char());
                    text.push(' ');
                }
                sign => text.push(sign),
            },
            tree => {
                if text.ends_with(|last: char| last.is_alphanumeric() || "_)]".contains(last)) {
                    text.push(' ');
                }
                text.push_str(&tree.to_string());
            }
        }
    }
}

/// "`a`, `b` and `c`"
pub(crate) fn list(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// Edits (insert, delete, replace, swap neighbours) from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(a != b);
            let mut best = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_finds_its_word_and_a_stranger_does_not() {
        let tiers = ["ModelResident", "EnginePersistent"];
        assert_eq!(closest("ModelResidnt", &tiers), Some("ModelResident"));
        assert_eq!(closest("model_resident", &tiers), Some("ModelResident"));
        assert_eq!(closest("Persistent", &tiers), None);
        assert_eq!(closest("dim", &["shape", "dims"]), Some("dims"));
        assert_eq!(closest("serde", &["shape", "dims", "when"]), None);
    }

    #[test]
    fn types_and_expressions_are_written_as_authors_write_them() {
        let same = [
            "BlockPool<GlobalKv<f16>, S>",
            "&'static f32",
            "[f32; layers]",
            "heads * head_dim",
            "(hidden + 1) * 2",
            "memtier::Packed<WeightFormat>",
            "dims.padded(1, rope.dim)",
            "fn(u8) -> u8",
            "vision && layers > 1",
        ];
        for words in same {
            let tokens: TokenStream = words.parse().unwrap();
            assert_eq!(text(tokens).replace(' ', ""), words.replace(' ', ""));
        }
        let tokens: TokenStream = "BlockPool<GlobalKv<f16>, S>".parse().unwrap();
        assert_eq!(text(tokens), "BlockPool<GlobalKv<f16>, S>");
        let tokens: TokenStream = "(hidden + 1)*2".parse().unwrap();
        assert_eq!(text(tokens), "(hidden + 1) * 2");
        let tokens: TokenStream = "out.len() as u64==n && a.len()<=b.len()".parse().unwrap();
        assert_eq!(text(tokens), "out.len() as u64 == n && a.len() <= b.len()");
        let tokens: TokenStream = "&'static f32".parse().unwrap();
        assert_eq!(text(tokens), "&'static f32");
    }

    #[test]
    fn neighbours_swapped_are_one_edit() {
        assert_eq!(distance("shaep", "shape"), 1);
        assert_eq!(distance("", "dims"), 4);
        assert_eq!(distance("dims", "dims"), 0);
    }
}
