//! The tokens of a CUDA source: as much of C++ as it takes to find kernels. Never fails: what makes no sense is a sign.

use std::collections::BTreeMap;

/// A token, and the line that it starts in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) line: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A name or a keyword.
    Word(String),
    Number(String),
    /// A string or a character, without its quotes.
    Text(String),
    Sign(char),
}

impl Token {
    pub(super) fn is(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }

    pub(super) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// A source without comments and preprocessor lines.
#[derive(Default)]
pub(super) struct Lexed {
    pub(super) tokens: Vec<Token>,
    /// `#define NAME text`, without parameters. `None`: defined twice, differently.
    pub(super) defines: BTreeMap<String, Option<String>>,
    /// The names of macros with parameters that may write kernels.
    pub(super) writers: Vec<String>,
}

pub(super) fn lex(source: &str) -> Lexed {
    let mut lexer = Lexer { chars: source.chars().collect(), at: 0, line: 1, found: Lexed::default() };
    lexer.run();
    lexer.found
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    found: Lexed,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek(0)?;
        self.at += 1;
        self.line += usize::from(next == '\n');
        Some(next)
    }

    fn run(&mut self) {
        let mut first = true; // on its line
        while let Some(sign) = self.peek(0) {
            let line = self.line;
            if sign == '\n' {
                first = true;
                self.next();
            } else if sign.is_whitespace() || self.continued() {
                self.next();
            } else if self.comment() {
            } else if sign == '#' && first {
                self.directive();
            } else {
                first = false;
                let kind = self.token(sign);
                self.found.tokens.push(Token { kind, line });
            }
        }
    }

    /// Whether a line ends here with a backslash, which is passed over; its end is not.
    fn continued(&mut self) -> bool {
        let ends = match (self.peek(1), self.peek(2)) {
            (Some('\n'), _) => 1,
            (Some('\r'), Some('\n')) => 2,
            _ => return false,
        };
        let continued = self.peek(0) == Some('\\');
        if continued {
            self.at += ends;
        }
        continued
    }

    /// Passes over a comment.
    fn comment(&mut self) -> bool {
        match (self.peek(0), self.peek(1)) {
            (Some('/'), Some('/')) => {
                while self.peek(0).is_some_and(|sign| sign != '\n') {
                    if self.continued() {
                        self.next();
                    } else if self.next().is_none() {
                        break;
                    }
                }
                true
            }
            (Some('/'), Some('*')) => {
                self.at += 2;
                while let Some(sign) = self.next() {
                    if sign == '*' && self.peek(0) == Some('/') {
                        self.at += 1;
                        break;
                    }
                }
                true
            }
            _ => false,
        }
    }

    /// A preprocessor line, with the lines that continue it.
    fn directive(&mut self) {
        let mut text = String::new();
        self.next();
        while let Some(sign) = self.peek(0) {
            if self.continued() {
                self.next();
                text.push(' ');
            } else if self.comment() {
                text.push(' ');
            } else if sign == '\n' {
                break;
            } else {
                text.push(sign);
                self.next();
            }
        }
        let Some(definition) = text.trim_start().strip_prefix("define").filter(|rest| rest.starts_with([' ', '\t']))
        else {
            return;
        };
        let definition = definition.trim();
        let end = definition.find(|sign| !is_word(sign)).unwrap_or(definition.len());
        let (name, value) = definition.split_at(end);
        if value.starts_with('(') {
            if value.contains("__global__") {
                self.found.writers.push(name.to_owned());
            }
        } else {
            let value = value.trim().to_owned();
            let known = self.found.defines.entry(name.to_owned()).or_insert_with(|| Some(value.clone()));
            if known.as_ref() != Some(&value) {
                *known = None;
            }
        }
    }

    fn token(&mut self, sign: char) -> Kind {
        if is_word(sign) && !sign.is_ascii_digit() {
            let word = self.while_in(is_word);
            let raw = ["R", "LR", "uR", "UR", "u8R"].contains(&word.as_str());
            return match self.peek(0) {
                Some('"') if raw => self.raw_text(),
                _ => Kind::Word(word),
            };
        }
        if sign.is_ascii_digit() {
            let mut number = String::new();
            // With separators: 1'000.
            while let Some(sign) = self.peek(0) {
                let separator = sign == '\'' && self.peek(1).is_some_and(is_word);
                if !is_word(sign) && sign != '.' && !separator {
                    break;
                }
                self.next();
                if !separator {
                    number.push(sign);
                }
            }
            return Kind::Number(number);
        }
        self.next();
        match sign {
            '"' | '\'' => self.text(sign),
            sign => Kind::Sign(sign),
        }
    }

    fn while_in(&mut self, set: impl Fn(char) -> bool) -> String {
        let mut text = String::new();
        while let Some(sign) = self.peek(0).filter(|sign| set(*sign)) {
            text.push(sign);
            self.next();
        }
        text
    }

    /// Behind the quote. One that is missing is at the end of the line.
    fn text(&mut self, quote: char) -> Kind {
        let mut text = String::new();
        while let Some(sign) = self.peek(0).filter(|sign| *sign != '\n') {
            self.next();
            match sign {
                '\\' => text.extend(self.next()),
                sign if sign == quote => break,
                sign => text.push(sign),
            }
        }
        Kind::Text(text)
    }

    /// `R"marker( .. )marker"`, from the quote.
    fn raw_text(&mut self) -> Kind {
        self.next();
        let mut end: Vec<char> = vec![')'];
        end.extend(self.while_in(|sign| sign != '(' && sign != '\n' && sign != '"').chars());
        end.push('"');
        self.next();
        let mut text = String::new();
        while !self.chars[self.at..].starts_with(&end) {
            match self.next() {
                Some(sign) => text.push(sign),
                None => return Kind::Text(text),
            }
        }
        self.at += end.len();
        Kind::Text(text)
    }
}

fn is_word(sign: char) -> bool {
    sign.is_alphanumeric() || sign == '_' || sign == '$'
}
