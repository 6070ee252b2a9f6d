//! The partition of a text by tokens that are found before anything is merged.

use super::Special;
use super::vocab::{TokenKind, Vocab};

/// A stretch of text, or a token that was found in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

#[derive(Debug)]
pub(super) struct SpecialTokens {
    /// Longest first: a longer token is found everywhere before a shorter one is looked for.
    tokens: Vec<SpecialToken>,
}

#[derive(Debug)]
struct SpecialToken {
    id: u32,
    text: Box<str>,
    /// User-defined tokens are text and always found; the others only where the caller lets control tokens in.
    always: bool,
}

impl SpecialTokens {
    pub(super) fn new(vocab: &Vocab) -> SpecialTokens {
        let mut tokens: Vec<SpecialToken> = vocab
            .iter()
            .filter(|(_, text, _)| !text.is_empty())
            .filter_map(|(id, text, kind)| {
                let always = match kind {
                    TokenKind::UserDefined => true,
                    TokenKind::Control | TokenKind::Unknown => false,
                    TokenKind::Normal | TokenKind::Unused | TokenKind::Byte => return None,
                };
                Some(SpecialToken { id, text: std::str::from_utf8(text).ok()?.into(), always })
            })
            .collect();
        tokens.sort_by_key(|token| std::cmp::Reverse(token.text.len()));
        SpecialTokens { tokens }
    }

    /// Splits a text; the fragments' texts are what is not a token.
    pub(super) fn split<'t>(&self, text: &'t str, special: Special) -> Vec<Fragment<'t>> {
        let beginnings = Beginnings::of(text);
        let mut fragments = Vec::new();
        if !text.is_empty() {
            fragments.push(Fragment::Text(text));
        }
        let wanted = |token: &&SpecialToken| token.always || special == Special::Parse;
        for token in self.tokens.iter().filter(wanted) {
            if beginnings.may_hold(&token.text) && text.contains(&*token.text) {
                fragments = fragments.into_iter().flat_map(|fragment| token.split(fragment)).collect();
            }
        }
        fragments
    }
}

impl SpecialToken {
    /// Splits one fragment at each place where the token is.
    fn split<'t>(&self, fragment: Fragment<'t>) -> Vec<Fragment<'t>> {
        let Fragment::Text(text) = fragment else { return vec![fragment] };
        let mut parts = Vec::new();
        for (index, part) in text.split(&*self.text).enumerate() {
            if index > 0 {
                parts.push(Fragment::Token(self.id));
            }
            if !part.is_empty() {
                parts.push(Fragment::Text(part));
            }
        }
        parts
    }
}

/// Which pairs of bytes a text has. Gemma has thousands of special tokens, and a text has the beginning of hardly any:
/// a look-up here spares a search of the text for each.
struct Beginnings(Vec<u64>);

impl Beginnings {
    fn of(text: &str) -> Beginnings {
        let mut bits = vec![0u64; 1 << 10];
        let bytes = text.as_bytes();
        for (index, &first) in bytes.iter().enumerate() {
            // The last byte begins a token of one byte at most, which `may_hold` does not look up.
            let second = bytes.get(index + 1).copied().unwrap_or(0);
            let pair = usize::from(first) << 8 | usize::from(second);
            bits[pair >> 6] |= 1 << (pair & 63);
        }
        Beginnings(bits)
    }

    fn may_hold(&self, token: &str) -> bool {
        let [first, second, ..] = *token.as_bytes() else { return true };
        let pair = usize::from(first) << 8 | usize::from(second);
        self.0[pair >> 6] >> (pair & 63) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: u32, text: &str, always: bool) -> SpecialToken {
        SpecialToken { id, text: text.into(), always }
    }

    #[test]
    fn longer_tokens_are_found_first_and_control_tokens_only_where_allowed() {
        use Fragment::*;
        let tokens =
            vec![token(3, "<a><b>", false), token(1, "\n\n", true), token(2, "<a>", false), token(4, "\n", true)];
        let special = SpecialTokens { tokens };
        let text = "x<a><b>\n\n\n<a>y";
        let all = [Text("x"), Token(3), Token(1), Token(4), Token(2), Text("y")];
        assert_eq!(special.split(text, Special::Parse), all);
        let plain = [Text("x<a><b>"), Token(1), Token(4), Text("<a>y")];
        assert_eq!(special.split(text, Special::Plain), plain);
        assert_eq!(special.split("", Special::Parse), []);
    }
}
