//! Operands as they are written.

use super::lexer::{Token, integer};

/// One operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Arg<'a> {
    /// A register, a number or a symbol; whether `!` or `-` is before it.
    Word { text: &'a str, not: bool, minus: bool },
    /// `symbol+8`.
    Symbol { text: &'a str, offset: i64 },
    /// `{a, b}`.
    Vector(Vec<Arg<'a>>),
    /// `[base+8]`; the base is empty where there is only a number.
    Address { base: &'a str, offset: i64 },
    /// `d|p`.
    Pair(&'a str, &'a str),
}

struct Cursor<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
}

impl<'a> Cursor<'_, 'a> {
    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).map_or("", |it| it.text)
    }

    fn next(&mut self) -> &'a str {
        let text = self.peek();
        self.at += 1;
        text
    }

    fn take(&mut self, text: &str) -> bool {
        let taken = self.peek() == text;
        self.at += usize::from(taken);
        taken
    }

    fn arg(&mut self) -> Result<Arg<'a>, String> {
        if self.take("{") {
            let mut parts = vec![self.part()?];
            while self.take(",") {
                parts.push(self.part()?);
            }
            return if self.take("}") { Ok(Arg::Vector(parts)) } else { Err("a vector without an end".into()) };
        }
        if self.take("[") {
            let address = self.address()?;
            return if self.take("]") { Ok(address) } else { Err("an address without an end".into()) };
        }
        let not = self.take("!");
        let minus = self.take("-");
        let text = self.next();
        if text.is_empty() || !text.starts_with(|it: char| it.is_ascii_alphanumeric() || "_$%.".contains(it)) {
            return Err(format!("`{text}` is no operand"));
        }
        if self.take("|") {
            return Ok(Arg::Pair(text, self.next()));
        }
        if matches!(self.peek(), "+" | "-") {
            let offset = self.offset()?;
            return Ok(Arg::Symbol { text, offset });
        }
        Ok(Arg::Word { text, not, minus })
    }

    /// A part of a vector, which is no vector itself.
    fn part(&mut self) -> Result<Arg<'a>, String> {
        if matches!(self.peek(), "{" | "[") { Err("a vector holds registers and numbers".into()) } else { self.arg() }
    }

    fn address(&mut self) -> Result<Arg<'a>, String> {
        let text = self.peek();
        if let Some(offset) = integer(text) {
            self.at += 1;
            return Ok(Arg::Address { base: "", offset: offset as i64 });
        }
        self.at += 1;
        let offset = if self.peek() == "]" { 0 } else { self.offset()? };
        Ok(Arg::Address { base: text, offset })
    }

    /// `+8`, `+-8`, `-8`.
    fn offset(&mut self) -> Result<i64, String> {
        let plus = self.take("+");
        let minus = self.take("-");
        let text = self.next();
        match integer(text) {
            Some(value) if plus || minus => Ok(if minus { (value as i64).wrapping_neg() } else { value as i64 }),
            _ => Err(format!("`{text}` is no offset")),
        }
    }
}

/// The operands of an instruction.
pub(super) fn arguments<'a>(tokens: &[Token<'a>]) -> Result<Vec<Arg<'a>>, String> {
    let mut cursor = Cursor { tokens, at: 0 };
    let mut args = Vec::new();
    while cursor.at < tokens.len() {
        args.push(cursor.arg()?);
        if cursor.at < tokens.len() && !cursor.take(",") {
            return Err(format!("`{}` where a comma belongs", cursor.peek()));
        }
    }
    Ok(args)
}

/// What stands behind the name of an instruction, taken off word by word: what is left is not known.
pub(super) struct Suffixes<'a>(Vec<&'a str>);

impl<'a> Suffixes<'a> {
    pub(super) fn of(opcode: &'a str) -> (&'a str, Self) {
        let mut words = opcode.split('.');
        let base = words.next().unwrap_or_default();
        (base, Self(words.collect()))
    }

    /// Whether the word is there; takes it.
    pub(super) fn take(&mut self, word: &str) -> bool {
        match self.0.iter().position(|it| *it == word) {
            Some(at) => {
                self.0.remove(at);
                true
            }
            None => false,
        }
    }

    /// The first word of which the function makes something; takes it.
    pub(super) fn find<T>(&mut self, make: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (at, made) = self.0.iter().enumerate().find_map(|(at, word)| make(word).map(|made| (at, made)))?;
        self.0.remove(at);
        Some(made)
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some(word) => Err(format!("`.{word}` is not known here")),
        }
    }
}
