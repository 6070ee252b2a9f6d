//! What several tests need: the real models where they are at hand, and the oracle's fixtures.
#![allow(unreachable_pub, reason = "a module of tests has no outside")]
#![allow(dead_code, reason = "each test uses a part of this")]

#[cfg(feature = "cuda")]
pub mod gpu;
pub mod quantised;
pub mod server;

use std::path::{Path, PathBuf};

use memtier_engine::{Llm, compute::Compute};
use memtier_model::write::TinyModel;
use serde::de::DeserializeOwned;
use tempfile::{NamedTempFile, TempDir};

/// Whether somebody asked for assertions of times (`MEMTIER_TIMES=1`): they want a quiet machine, so `cargo xtask test` does not.
pub fn times_matter() -> bool {
    std::env::var_os("MEMTIER_TIMES").is_some()
}

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

/// The text of a fixture file: of the sources, or of the folder `MEMTIER_FIXTURES` where the sources are not.
pub fn fixture_text(file: &str) -> String {
    let sources = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join("fixtures");
    let path = std::env::var_os("MEMTIER_FIXTURES").map_or_else(sources, PathBuf::from).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file that goes when the test ends.
pub struct Temporary(NamedTempFile);

impl Temporary {
    /// A file of these bytes.
    pub fn new(name: &str, bytes: &[u8]) -> Self {
        let file = tempfile::Builder::new().suffix(&format!("-{name}")).tempfile().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        Temporary(file)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The same for a command line.
    pub fn text(&self) -> &str {
        self.path().to_str().unwrap()
    }
}

/// A tiny model's file.
pub fn tiny_file(name: &str, model: TinyModel) -> Temporary {
    Temporary::new(&format!("{name}.gguf"), &model.to_gguf().unwrap().to_bytes())
}

/// A tree of files like the kernel's, on which nothing is short; removed when dropped.
pub struct Tree(TempDir);

impl Tree {
    /// 24 of 32 GiB are available, nobody stalls, no group has a limit.
    pub fn new() -> Self {
        let tree = Tree(tempfile::tempdir().unwrap());
        tree.meminfo(32 << 20, 24 << 20);
        tree.write("proc/pressure/memory", b"some avg10=0.00 avg60=0.00\nfull avg10=0.00 avg60=0.00\n");
        tree.write("proc/self/cgroup", b"0::/serve\n");
        tree.write("sys/fs/cgroup/cgroup.controllers", b"memory\n");
        tree.write("sys/fs/cgroup/serve/memory.current", b"1073741824\n");
        tree.write("sys/fs/cgroup/serve/memory.high", b"max\n");
        tree.write("sys/fs/cgroup/serve/memory.max", b"max\n");
        tree
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        self.0.path()
    }

    /// Replaces a file.
    pub fn write(&self, path: &str, content: &[u8]) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // As the kernel does it: a reader sees the old file or the new one.
        let new = path.with_extension("new");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    /// What the host has.
    pub fn meminfo(&self, total_kib: u64, available_kib: u64) {
        let content = format!("MemTotal: {total_kib} kB\nMemFree: 1 kB\nMemAvailable: {available_kib} kB\n");
        self.write("proc/meminfo", content.as_bytes());
    }
}

/// Teacher-forced logits of all positions.
pub fn logits<S: Compute>(llm: &mut Llm<S>, tokens: &[u32]) -> Vec<f32> {
    let mut all = Vec::new();
    llm.score(tokens, &mut |_, row| all.extend_from_slice(row), None).unwrap();
    all
}

/// Root mean square of the difference, relative to that of `b`.
pub fn relative(a: &[f32], b: &[f32]) -> f64 {
    let square = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>();
    let difference = square(&mut a.iter().zip(b).map(|(a, b)| f64::from(a - b)));
    (difference / square(&mut b.iter().map(|b| f64::from(*b)))).sqrt()
}
