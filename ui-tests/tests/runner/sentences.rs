//! Our own sentences: what the sources of memtier and its macros can say to a user.

use std::{fs, path::Path};

use super::workspace;

/// A sentence with holes, where `rustc` or a macro fills in a name.
pub(crate) struct Sentence {
    /// As the source has it.
    pub(crate) text: String,
    pieces: Vec<String>,
}

impl Sentence {
    fn of(literal: &str) -> Self {
        let (mut pieces, mut rest) = (Vec::new(), literal);
        while let Some((before, after)) = rest.split_once('{') {
            pieces.push(before.to_owned());
            rest = after.split_once('}').map_or("", |(_, after)| after);
        }
        pieces.push(rest.to_owned());
        let text = literal.to_owned();
        Sentence { text, pieces: pieces.into_iter().filter(|piece| !piece.trim().is_empty()).collect() }
    }

    /// Whether `line` says it.
    pub(crate) fn is_in(&self, line: &str) -> bool {
        let mut rest = line;
        self.pieces.iter().all(|piece| match rest.find(piece.as_str()) {
            Some(at) => {
                rest = &rest[at + piece.len()..];
                true
            }
            None => false,
        })
    }

    fn words(&self) -> usize {
        self.pieces.iter().map(|piece| piece.split_whitespace().count()).sum()
    }
}

/// What bounds say: the `message` of every `#[diagnostic::on_unimplemented]`, and what constant evaluation stops with.
pub(crate) fn of_the_core() -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let folders = ["memtier/src", "memtier-cuda/src"].map(|folder| workspace().join(folder));
    for source in folders.iter().flat_map(|folder| sources(folder)) {
        for start in
            ["on_unimplemented(\n    message = \"", "on_unimplemented(\n        message = \"", "None => panic!(\""]
        {
            for at in source.match_indices(start).map(|(at, _)| at + start.len()) {
                sentences.push(Sentence::of(&literal(&source[at..])));
            }
        }
    }
    sentences.retain(|sentence| sentence.words() >= 3);
    sentences
}

/// What macros say: every string in their sources that is more than a name.
pub(crate) fn of_the_macros() -> Vec<Sentence> {
    let mut sentences = Vec::new();
    for source in sources(&workspace().join("memtier-macros/src")) {
        // Character literals that look like the start of a string are not used there.
        let mut rest = source.as_str();
        while let Some(at) = rest.find('"') {
            let inside = &rest[at + 1..];
            sentences.push(Sentence::of(&literal(inside)));
            rest = &inside[length(inside) + 1..];
        }
    }
    sentences.retain(|sentence| sentence.words() >= 3);
    sentences
}

/// The string that starts here, up to its closing quote, with its escapes and continued lines resolved.
fn literal(source: &str) -> String {
    let mut text = String::new();
    let mut chars = source[..length(source)].chars().peekable();
    while let Some(char) = chars.next() {
        match (char, chars.peek()) {
            ('\\', Some('\n')) => while chars.next_if(|next| next.is_whitespace()).is_some() {},
            ('\\', Some(_)) => text.extend(chars.next()),
            _ => text.push(char),
        }
    }
    text
}

fn length(source: &str) -> usize {
    let mut escaped = false;
    for (at, char) in source.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    source.len().saturating_sub(1)
}

fn sources(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("sources can be listed") {
        let path = entry.expect("sources can be listed").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            let source = fs::read_to_string(&path).expect("sources can be read");
            // What tests say is no message to a user.
            let tests = source.find("#[cfg(test)]\nmod tests {").unwrap_or(source.len());
            found.push(source[..tests].to_owned());
        }
    }
    found
}
