//! The kernels of a CUDA source, and what they take. Never fails: what is not understood is not a kernel, or a parameter
//! of an odd kind.

use std::collections::BTreeMap;

use super::lex::{Kind, Lexed, Token, lex};

/// What a source declares.
pub(super) struct Source {
    pub(super) kernels: Vec<Kernel>,
    /// Names of types, and what they stand for. `None`: for something that is no plain number.
    pub(super) aliases: BTreeMap<String, Option<String>>,
    /// Macros that write kernels.
    pub(super) writers: Vec<String>,
}

/// A `__global__` function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Kernel {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) params: Vec<Param>,
    pub(super) bound: Bound,
    pub(super) template: bool,
    /// Whether it is `extern "C"`: found by its name in a compiled module.
    pub(super) c_name: bool,
}

/// How many threads a block may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Bound {
    /// The source does not say.
    None,
    Threads(u64),
    /// It says something that takes a compiler.
    Unread(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Param {
    /// As it is written.
    pub(super) text: String,
    pub(super) line: usize,
    pub(super) name: Option<String>,
    pub(super) ty: Ty,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ty {
    Value(String),
    Pointer {
        to: String,
        constant: bool,
    },
    /// What no wrapper passes, in words.
    Odd(&'static str),
}

pub(super) fn parse(source: &str) -> Source {
    let lexed = lex(source);
    let mut kernels = Vec::new();
    let mut aliases = BTreeMap::new();
    // For each open brace, whether what is inside has C names.
    let mut scopes: Vec<bool> = Vec::new();
    let mut rest: &[Token] = &lexed.tokens;
    while let Some(token) = rest.first() {
        let c_name = scopes.last().copied().unwrap_or(false);
        if let Some((inner, after)) = opened(rest, c_name) {
            scopes.push(inner);
            rest = after;
        } else if token.is('}') {
            scopes.pop();
            rest = &rest[1..];
        } else {
            let (declaration, after) = declaration(rest);
            alias(declaration, &mut aliases);
            kernels.extend(kernel(declaration, c_name, &lexed));
            rest = after;
        }
    }
    Source { kernels, aliases, writers: lexed.writers }
}

/// The inside of `extern "C" {` and of `namespace name {`.
fn opened(tokens: &[Token], c_name: bool) -> Option<(bool, &[Token])> {
    match tokens {
        [one, two, three, ..] if one.word() == Some("extern") && is_text(two) && three.is('{') => {
            Some((two.kind == Kind::Text("C".to_owned()), &tokens[3..]))
        }
        [one, ..] if one.word() == Some("namespace") => {
            let brace = tokens.iter().position(|token| token.word().is_none() && !token.is(':'))?;
            tokens[brace].is('{').then(|| (c_name, &tokens[brace + 1..]))
        }
        [one, two, ..] if one.word() == Some("inline") && two.word() == Some("namespace") => {
            opened(&tokens[1..], c_name)
        }
        _ => None,
    }
}

fn is_text(token: &Token) -> bool {
    matches!(token.kind, Kind::Text(_))
}

/// Up to its `;` or the end of its body; never nothing.
fn declaration(tokens: &[Token]) -> (&[Token], &[Token]) {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match &token.kind {
            Kind::Sign('(' | '[') => depth += 1,
            Kind::Sign(')' | ']') => depth = depth.saturating_sub(1),
            Kind::Sign(';') if depth == 0 => return (&tokens[..=at], &tokens[at + 1..]),
            Kind::Sign('}') if depth == 0 && at > 0 => return (&tokens[..at], &tokens[at..]),
            Kind::Sign('{') if depth == 0 => {
                let end = at + balanced(&tokens[at..], '{', '}');
                return (&tokens[..at], &tokens[end..]);
            }
            // A macro that needs no semicolon stands in front.
            Kind::Word(word) if word == "extern" && depth == 0 && at > 0 => {
                let before = &tokens[..at];
                if !before.iter().any(|token| matches!(token.word(), Some("__global__" | "template"))) {
                    return (before, &tokens[at..]);
                }
            }
            _ => {}
        }
        at += 1;
    }
    (tokens, &[])
}

/// How many tokens the group is long that starts here.
fn balanced(tokens: &[Token], open: char, close: char) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate() {
        if token.is(open) {
            depth += 1;
        } else if token.is(close) {
            depth = depth.saturating_sub(1);
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// `typedef unsigned short u16;` and `using u16 = unsigned short;`
fn alias(declaration: &[Token], aliases: &mut BTreeMap<String, Option<String>>) {
    let Some((_, tokens)) = declaration.split_last().filter(|(end, _)| end.is(';')) else { return };
    let (name, ty) = match tokens {
        [first, ty @ .., name] if first.word() == Some("typedef") => (name, ty),
        [first, name, equals, ty @ ..] if first.word() == Some("using") && equals.is('=') => (name, ty),
        _ => return,
    };
    let Some(name) = name.word() else { return };
    let plain = ty.iter().all(|token| token.word().is_some() || token.is(':'));
    let ty = plain.then(|| type_words(ty)).filter(|words| !words.is_empty()).map(|words| canonical(&words));
    let known = aliases.entry(name.to_owned()).or_insert_with(|| ty.clone());
    if *known != ty {
        *known = None;
    }
}

/// The kernel that it declares.
fn kernel(tokens: &[Token], c_name: bool, lexed: &Lexed) -> Option<Kernel> {
    let global = tokens.iter().position(|token| token.word() == Some("__global__"))?;
    let before = &tokens[..global];
    let template = before.iter().any(|token| token.word() == Some("template"));
    let linkage = |pair: &[Token]| pair[0].word() == Some("extern") && pair[1].kind == Kind::Text("C".to_owned());
    let c_name = c_name || before.windows(2).any(linkage);
    let mut bound = tokens[..global].iter().position(|token| token.word() == Some("__launch_bounds__"));
    let mut at = global + 1;
    while let Some(token) = tokens.get(at) {
        let group = tokens.get(at + 1).is_some_and(|next| next.is('('));
        match token.word() {
            Some("__launch_bounds__") => bound = Some(at),
            Some(word) if group && !is_attribute(word) => {
                let list = &tokens[at + 1..at + 1 + balanced(&tokens[at + 1..], '(', ')')];
                let bound = bound.map_or(Bound::None, |at| read_bound(&tokens[at + 1..], lexed));
                let params = parameters(list);
                return Some(Kernel { name: word.to_owned(), line: token.line, params, bound, template, c_name });
            }
            _ => {}
        }
        at += if group { 1 + balanced(&tokens[at + 1..], '(', ')') } else { 1 };
    }
    None
}

fn is_attribute(word: &str) -> bool {
    word.starts_with("__") && word.ends_with("__") || matches!(word, "alignas" | "decltype" | "noexcept")
}

/// The first argument of the group.
fn read_bound(tokens: &[Token], lexed: &Lexed) -> Bound {
    let group = &tokens[..balanced(tokens, '(', ')')];
    if !group.first().is_some_and(|token| token.is('(')) {
        return Bound::Unread(String::new());
    }
    let arguments = split(group);
    let Some(first) = arguments.first() else { return Bound::Unread(String::new()) };
    match product(first, lexed, 0) {
        Some(threads) => Bound::Threads(threads),
        None => Bound::Unread(text(first)),
    }
}

/// Numbers, and names that are defined as one, multiplied.
fn product(tokens: &[Token], lexed: &Lexed, depth: usize) -> Option<u64> {
    let inner = match tokens {
        [open, inner @ .., close] if open.is('(') && close.is(')') => inner,
        _ => tokens,
    };
    if tokens.len() > 16 || depth > 2 {
        return None;
    }
    let factors = inner.split(|token| token.is('*')).map(|factor| match factor {
        [Token { kind: Kind::Number(number), .. }] => integer(number),
        [Token { kind: Kind::Word(name), .. }] => {
            let value = lexed.defines.get(name)?.as_ref()?;
            product(&lex(value).tokens, lexed, depth + 1)
        }
        _ => None,
    });
    factors.into_iter().try_fold(1u64, |product, factor| product.checked_mul(factor?))
}

fn integer(number: &str) -> Option<u64> {
    let digits = number.trim_end_matches(['u', 'U', 'l', 'L']);
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(&digits[1..], 8).ok(),
        None => digits.parse().ok(),
    }
}

/// What stands between the commas of a group, its signs left out.
fn split(group: &[Token]) -> Vec<&[Token]> {
    let inner = match group {
        [_, inner @ .., last] if last.is(')') => inner,
        [_, inner @ ..] => inner,
        [] => group,
    };
    let (mut pieces, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (at, token) in inner.iter().enumerate() {
        match token.kind {
            Kind::Sign('(' | '[' | '{' | '<') => depth += 1,
            Kind::Sign(')' | ']' | '}' | '>') => depth = depth.saturating_sub(1),
            Kind::Sign(',') if depth == 0 => {
                pieces.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < inner.len() || !pieces.is_empty() {
        pieces.push(&inner[start..]);
    }
    pieces
}

fn parameters(list: &[Token]) -> Vec<Param> {
    let pieces = split(list);
    match pieces.as_slice() {
        [[only]] if only.word() == Some("void") => Vec::new(),
        pieces => {
            let line = list.first().map_or(1, |token| token.line);
            pieces.iter().map(|piece| parameter(piece, line)).collect()
        }
    }
}

fn parameter(tokens: &[Token], line: usize) -> Param {
    let line = tokens.first().map_or(line, |token| token.line);
    let text = text(tokens);
    let odd = |why| Param { text: text.clone(), line, name: None, ty: Ty::Odd(why) };
    if tokens.iter().filter(|token| token.is('.')).count() > 1 {
        return odd("a kernel with `...` has no fixed arguments");
    }
    for (sign, why) in [
        ('&', "a kernel cannot follow a reference to host memory"),
        ('(', "functions are not passed to kernels by address"),
        ('<', "a value of a template has a layout that only the C++ compiler knows"),
    ] {
        if tokens.iter().any(|token| token.is(sign)) {
            return odd(why);
        }
    }
    // `int x[4]` is a pointer, too.
    let end = tokens.iter().position(|token| token.is('[')).unwrap_or(tokens.len());
    let arrays = tokens[end..].iter().filter(|token| token.is('[')).count();
    let (declared, star) = (&tokens[..end], tokens[..end].iter().position(|token| token.is('*')));
    let stars = declared.iter().filter(|token| token.is('*')).count();
    let (head, tail) = declared.split_at(star.unwrap_or(end));
    let mut words = type_words(head);
    let name = match star {
        Some(_) => tail.iter().filter_map(Token::word).rfind(|word| !QUALIFIERS.contains(word)),
        None => named(&mut words),
    };
    let name = name.map(str::to_owned);
    if words.is_empty() {
        return odd("it has no type that could be read");
    }
    let constant = head.iter().any(|token| token.word() == Some("const"));
    let ty = match stars + arrays {
        0 => Ty::Value(canonical(&words)),
        1 => Ty::Pointer { to: canonical(&words), constant },
        _ => Ty::Odd("pointers in device memory are not checked by anybody"),
    };
    Param { text, line, name, ty }
}

const QUALIFIERS: [&str; 15] = [
    "const",
    "volatile",
    "__restrict__",
    "__restrict",
    "restrict",
    "register",
    "struct",
    "enum",
    "union",
    "class",
    "typename",
    "__grid_constant__",
    "__device__",
    "static",
    "constexpr",
];

/// Words that are a type of their own or a part of one, never a name.
const BASIC: [&str; 10] = ["unsigned", "signed", "int", "long", "short", "char", "float", "double", "bool", "void"];

/// The words of a type; of a path with `::` the last one.
fn type_words(tokens: &[Token]) -> Vec<&str> {
    let mut words: Vec<&str> = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token.word() {
            None => colons += usize::from(token.is(':')),
            Some(word) if QUALIFIERS.contains(&word) => colons = 0,
            Some(word) => {
                if colons == 2 {
                    words.pop();
                }
                words.push(word);
                colons = 0;
            }
        }
    }
    words
}

/// Takes the parameter's name from behind its type, if it has one.
fn named<'t>(words: &mut Vec<&'t str>) -> Option<&'t str> {
    let last = *words.last()?;
    if words.len() < 2 || BASIC.contains(&last) { None } else { words.pop() }
}

/// One spelling for `unsigned`, `unsigned int` and `int unsigned`.
fn canonical(words: &[&str]) -> String {
    let has = |word: &str| words.contains(&word);
    let longs = words.iter().filter(|word| **word == "long").count();
    if !words.iter().all(|word| BASIC.contains(word)) || words.is_empty() {
        return words.join(" ");
    }
    let base = match () {
        () if has("char") => "char",
        () if has("short") => "short",
        () if has("double") => "double",
        () if longs >= 2 => "long long",
        () if longs == 1 => "long",
        () if has("float") => "float",
        () if has("bool") => "bool",
        () if has("void") => "void",
        () => "int",
    };
    match (has("unsigned"), base) {
        (true, base) => format!("unsigned {base}"),
        (false, "char") if has("signed") => "signed char".to_owned(),
        (false, base) => base.to_owned(),
    }
}

/// Tokens as an author writes them.
fn text(tokens: &[Token]) -> String {
    let mut text = String::new();
    for token in tokens {
        let piece = match &token.kind {
            Kind::Word(piece) | Kind::Number(piece) => piece.clone(),
            Kind::Text(piece) => format!("{piece:?}"),
            Kind::Sign(sign) => sign.to_string(),
        };
        let tight = text.is_empty() || text.ends_with(['*', '(', '[', '<', ':', '&', '.']);
        let tight = tight && !text.ends_with(' ') || [")", "]", "[", "<", ">", ":", ",", "(", "."].contains(&&*piece);
        if !tight {
            text.push(' ');
        }
        text.push_str(&piece);
    }
    text
}
