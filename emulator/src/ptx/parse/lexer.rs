//! A text in words.

use crate::ptx::PtxError;

/// A word, a number or a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    /// From one.
    pub(crate) line: u32,
}

/// All words of a text, without comments.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, PtxError> {
    let bytes = text.as_bytes();
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'\n' => {
                line += 1;
                at += 1;
            }
            byte if byte.is_ascii_whitespace() => at += 1,
            // What compilers put behind the last line.
            0 => break,
            b'/' if bytes[at..].starts_with(b"//") => {
                at = bytes[at..].iter().position(|it| *it == b'\n').map_or(bytes.len(), |it| at + it);
            }
            b'/' if bytes[at..].starts_with(b"/*") => {
                let end = text[at + 2..].find("*/").ok_or_else(|| wrong(line, "a comment without an end", "/*"))?;
                line += lines(&text[at..at + 2 + end]);
                at += end + 4;
            }
            b'"' => {
                let end = text[at + 1..].find('"').ok_or_else(|| wrong(line, "a string without an end", "\""))?;
                at += end + 2;
                tokens.push(Token { text: &text[start..at], line });
                line += lines(&text[start..at]);
            }
            byte if in_word(byte) => {
                at = end_of_word(bytes, at);
                tokens.push(Token { text: &text[start..at], line });
            }
            byte if byte.is_ascii() => {
                at += 1;
                tokens.push(Token { text: &text[start..at], line });
            }
            _ => return Err(wrong(line, "a letter that PTX does not have", "")),
        }
    }
    Ok(tokens)
}

/// An error about a line.
pub(crate) fn wrong(line: u32, what: impl Into<String>, text: impl Into<String>) -> PtxError {
    PtxError { line, what: what.into(), text: text.into() }
}

fn lines(text: &str) -> u32 {
    text.bytes().filter(|it| *it == b'\n').count() as u32
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

/// `L2::128B` is one word, `label:` is a word and a colon.
fn end_of_word(bytes: &[u8], mut at: usize) -> usize {
    loop {
        while at < bytes.len() && in_word(bytes[at]) {
            at += 1;
        }
        if bytes[at..].starts_with(b"::") && bytes.get(at + 2).is_some_and(|it| in_word(*it)) {
            at += 2;
        } else {
            return at;
        }
    }
}

/// The value of an integer: decimal, `0x`, `0b`, octal.
pub(crate) fn integer(word: &str) -> Option<u64> {
    let word = word.strip_suffix('U').unwrap_or(word);
    if let Some(digits) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        u64::from_str_radix(digits, 16).ok()
    } else if let Some(digits) = word.strip_prefix("0b") {
        u64::from_str_radix(digits, 2).ok()
    } else if word.len() > 1 && word.starts_with('0') {
        u64::from_str_radix(&word[1..], 8).ok()
    } else {
        word.parse().ok()
    }
}

/// A constant of a floating type: `0f` and the bits of an f32, `0d` and those of an f64, or decimal.
pub(crate) fn float(word: &str) -> Option<f64> {
    if let Some(digits) = word.strip_prefix("0f").or_else(|| word.strip_prefix("0F")) {
        u32::from_str_radix(digits, 16).ok().map(|bits| f64::from(f32::from_bits(bits)))
    } else if let Some(digits) = word.strip_prefix("0d").or_else(|| word.strip_prefix("0D")) {
        u64::from_str_radix(digits, 16).ok().map(f64::from_bits)
    } else if word.contains('.') {
        word.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_double_colons_and_leave_single_ones() {
        let text = "$L:\n@%p1 ld.L2::128B {%f1, _}, [a+-8]; // x\n/* \n */ \"s s\"";
        let words: Vec<_> = tokens(text).unwrap().iter().map(|it| (it.text, it.line)).collect();
        let expected = "$L : @ %p1 ld.L2::128B { %f1 , _ } , [ a + - 8 ] ;".split(' ');
        assert!(words.iter().map(|it| it.0).take(18).eq(expected));
        assert_eq!(words.last(), Some(&("\"s s\"", 4)));
    }

    #[test]
    fn numbers() {
        assert_eq!(
            [integer("12"), integer("0xfF"), integer("017"), integer("0b11"), integer("x")],
            [Some(12), Some(255), Some(15), Some(3), None]
        );
        assert_eq!(
            [float("0f3F800000"), float("0d4000000000000000"), float("1.5"), float("3")],
            [Some(1.0), Some(2.0), Some(1.5), None]
        );
    }
}
