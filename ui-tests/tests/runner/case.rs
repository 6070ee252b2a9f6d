//! Cases: programs that are legal, and a crime with `--cfg crime`.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// One program with a crime in it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Relative to `tests/`, without extension: `ui/kv/block-ref-copied`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The row of the design's table of illegal states, or `macros`.
    pub(crate) row: String,
    /// `E0277`, or `macro` for a message of our macros.
    pub(crate) error: String,
    /// Words of the first error.
    pub(crate) says: String,
    /// What is wrong, in a sentence.
    pub(crate) wrong: String,
    /// Fails only when code is generated, as `cargo build` does and `cargo check` does not.
    pub(crate) build: bool,
}

impl Case {
    fn read(tests: &Path, path: PathBuf) -> Option<Self> {
        let source = fs::read_to_string(&path).expect("a case can be read");
        if !source.contains("(crime") {
            return None;
        }
        let name = path.strip_prefix(tests).expect("cases lie under tests/").with_extension("");
        let name = name.to_string_lossy().into_owned();
        let header: Vec<&str> = source.lines().map_while(|line| line.strip_prefix("//! ")).collect();
        let all =
            |key: &str| header.iter().filter_map(|line| line.strip_prefix(key)).map(str::trim).collect::<Vec<_>>();
        let one = |key: &str| match all(key).as_slice() {
            [value] => (*value).to_owned(),
            _ => panic!("{name}: the header needs one line `//! {key} ..`"),
        };
        let keyed =
            |line: &&&str| ["row:", "error:", "says:", "mode:", "hole:"].iter().any(|key| line.starts_with(key));
        let prose: Vec<&str> = header.iter().filter(|line| !keyed(line)).copied().collect();
        assert!(!prose.is_empty(), "{name}: the header does not say what is wrong");
        Some(Case {
            row: one("row:"),
            error: one("error:"),
            says: one("says:"),
            wrong: prose.join(" "),
            build: all("mode:") == ["build"],
            name,
            path,
        })
    }

    /// Where its message is kept.
    pub(crate) fn snapshot(&self) -> PathBuf {
        self.path.with_extension("stderr")
    }
}

/// Every case, in order. `MEMTIER_UI=words` leaves those whose name holds the words.
pub(crate) fn cases() -> Vec<Case> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut cases: Vec<_> = files(&tests, "rs").into_iter().filter_map(|path| Case::read(&tests, path)).collect();
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    cases
}

/// Every file of this extension in the folders of programs.
pub(crate) fn files(tests: &Path, extension: &str) -> Vec<PathBuf> {
    let mut folders: Vec<_> = ["ui", "attacks", "wanted"].iter().map(|folder| tests.join(folder)).collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("a folder can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found
}
