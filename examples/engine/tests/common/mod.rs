//! What several tests need: the real models where they are at hand, and the oracle's fixtures.
#![allow(unreachable_pub, reason = "a module of tests has no outside")]
#![allow(dead_code, reason = "each test uses a part of this")]

use std::path::PathBuf;

use serde::de::DeserializeOwned;

/// A real model that tests run on when it is in the cache folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealModel {
    /// The name in the fixtures' file names.
    pub name: &'static str,
    file: &'static str,
}

/// SmolLM2 135M Instruct, Q4_1.
pub const SMOLLM2: RealModel = RealModel { name: "smollm2", file: "smollm2-135m-instruct-q4_1.gguf" };
/// Gemma 3 270M, Q4_K_M.
pub const GEMMA3: RealModel = RealModel { name: "gemma3", file: "gemma-3-270m-q4_k_m.gguf" };

impl RealModel {
    /// Where the model is, or `None` after a line that says that the test is skipped and why.
    pub fn path(self) -> Option<PathBuf> {
        let home = || std::env::home_dir().map(|home| home.join(".cache").join("memtier"));
        let folder = std::env::var_os("MEMTIER_CACHE").map(PathBuf::from).or_else(home)?;
        let path = folder.join(self.file);
        if path.exists() {
            return Some(path);
        }
        // Past the test harness, which would keep the line to itself.
        use std::io::Write;
        let line = format!("SKIPPED: {} is not there; cargo xtask demo fetches it\n", path.display());
        let _ = std::io::stderr().write_all(line.as_bytes());
        None
    }

    /// The fixture `KIND-NAME.json`.
    pub fn fixture<T: DeserializeOwned>(self, kind: &str) -> T {
        let text = fixture_text(&format!("{kind}-{}.json", self.name));
        serde_json::from_str(&text).expect("fixtures are written by xtask/oracle")
    }
}

/// The text of a fixture file.
pub fn fixture_text(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join("fixtures").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
