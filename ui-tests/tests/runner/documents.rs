//! The error index of the manual, and the tables that are written from the cases.

use std::{collections::BTreeMap, fs, path::PathBuf};

use super::{blessing, case::Case, workspace};

/// The error index: two chapters of the manual.
pub(crate) struct Index {
    /// What memtier says.
    ours: String,
    /// What the compiler says in its own words.
    compilers: String,
}

fn manual(file: &str) -> PathBuf {
    workspace().join("memtier/src/manual").join(file)
}

pub(crate) fn index() -> Index {
    let read = |file| fs::read_to_string(manual(file)).unwrap_or_default();
    Index { ours: read("errors.rs"), compilers: read("compiler_errors.rs") }
}

impl Index {
    /// Whether the index has this case among those where the compiler's own words are explained.
    pub(crate) fn explains(&self, case: &str) -> bool {
        self.compilers.contains(&format!("`{}`", short(case)))
    }

    /// Whether the index has an entry for this sentence.
    pub(crate) fn quotes(&self, sentence: &str) -> bool {
        self.ours.contains(&format!("## {sentence}\n"))
    }

    /// The names of cases it mentions.
    fn mentioned(&self) -> impl Iterator<Item = &str> {
        let folders = ["phase/", "tier/", "span/", "launch/", "kv/", "graph/", "scratch/", "macros/", "attacks/"];
        self.compilers
            .split('`')
            .filter(move |text| folders.iter().any(|folder| text.starts_with(folder)) && !text.contains(' '))
    }
}

/// How a case is called in documents: `kv/block-ref-copied`.
fn short(name: &str) -> &str {
    name.strip_prefix("ui/").unwrap_or(name)
}

/// Fails when a document does not say what the cases say; writes it when blessing.
pub(crate) fn check(cases: &[Case]) {
    let known: Vec<_> = cases.iter().map(|case| short(&case.name)).collect();
    let stale: Vec<_> = index().mentioned().filter(|name| !known.contains(name)).map(str::to_owned).collect();
    assert!(stale.is_empty(), "the error index names cases that are not there: {stale:?}");
    for (file, text) in [("cases.md", table(cases)), ("first_errors.md", first_errors(cases))] {
        let path = manual(file);
        let kept = fs::read_to_string(&path).unwrap_or_default();
        if kept != text && blessing() {
            fs::write(&path, text).expect("the manual can be written");
        } else {
            assert!(kept == text, "{} is out of date: MEMTIER_BLESS=1 writes it", path.display());
        }
    }
}

/// Rows and their cases, as Markdown.
fn table(cases: &[Case]) -> String {
    let mut rows: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        rows.entry(&case.row).or_default().push(case);
    }
    let mut text = String::from("| Row | Cases | What is refused |\n|---|---|---|\n");
    for (row, cases) in &rows {
        for (index, case) in cases.iter().enumerate() {
            let row = if index == 0 { format!("{row} ({})", cases.len()) } else { String::new() };
            text.push_str(&format!("| {row} | `{}` | {} |\n", short(&case.name), case.wrong));
        }
    }
    text
}

/// Mistakes of somebody who skims the README, each with the first message that the compiler prints.
fn first_errors(cases: &[Case]) -> String {
    let mistakes = [
        ("One more buffer, while serving", "ui/phase/declare-while-serving"),
        ("A `DeviceSpan` to attention", "ui/launch/device-span-to-attention"),
        ("A block's span, kept after the step", "ui/kv/block-kept-after-finish"),
        ("A buffer on the stack, in a capture", "ui/graph/stack-buffer-in-a-capture"),
        ("A part that nobody declared", "ui/phase/part-without-a-line"),
    ];
    let mut text = String::new();
    for (mistake, name) in mistakes {
        let case = cases.iter().find(|case| case.name == name).expect("the mistakes are cases");
        let message = fs::read_to_string(case.snapshot()).unwrap_or_default();
        let first = message.split("\n\n").next().unwrap_or_default();
        text.push_str(&format!("# {mistake}\n\n{} (`{}`)\n\n```text\n{first}\n```\n\n", case.wrong, short(name)));
    }
    text
}
