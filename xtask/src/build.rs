//! What cargo built, and where.

use std::path::{Path, PathBuf};
use std::process::Command;

use tinyjson::JsonValue;

use crate::failure::Failure;
use crate::{paths, process};

/// A binary that cargo produced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// The target's name: a binary, an integration test, a bench.
    pub name: String,
    /// `bin`, `test`, `bench`, `lib`, `example`.
    pub kind: String,
    /// The file.
    pub executable: PathBuf,
}

/// A cargo command in the repository's root.
pub fn cargo<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(paths::cargo());
    command.current_dir(paths::root()).args(args);
    command
}

/// Runs a cargo build (its progress and errors on the terminal) and returns the executables it names, in its order.
///
/// # Errors
/// The build fails; cargo has said why.
pub fn artifacts<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<Vec<Artifact>, Failure> {
    let messages = process::output(cargo(args).arg("--message-format=json-render-diagnostics"))?;
    Ok(messages.lines().filter_map(artifact).collect())
}

/// Builds one package's binary and returns its path.
///
/// # Errors
/// The build fails, or the package has no such binary.
pub fn binary(package: &str, name: &str) -> Result<PathBuf, Failure> {
    binary_with(package, name, "")
}

/// The same with features, separated by commas.
///
/// # Errors
/// As [`binary`].
pub fn binary_with(package: &str, name: &str, features: &str) -> Result<PathBuf, Failure> {
    let built = artifacts(["build", "--release", "--package", package, "--bin", name, "--features", features])?;
    let found = built.into_iter().find(|artifact| artifact.name == name && artifact.kind == "bin");
    found
        .map(|artifact| artifact.executable)
        .ok_or_else(|| Failure::new(format!("cargo built {package} but named no binary {name}")))
}

/// The executable that one line of cargo's messages announces.
fn artifact(line: &str) -> Option<Artifact> {
    let message: JsonValue = line.parse().ok()?;
    let text = |value: &JsonValue| value.get::<String>().cloned();
    let object = message.get::<std::collections::HashMap<String, JsonValue>>()?;
    let executable = text(object.get("executable")?)?;
    let target = object.get("target")?.get::<std::collections::HashMap<String, JsonValue>>()?;
    let kind = target.get("kind")?.get::<Vec<JsonValue>>()?.first().and_then(text)?;
    Some(Artifact { name: text(target.get("name")?)?, kind, executable: Path::new(&executable).to_path_buf() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_with_an_executable_count() {
        let line = r#"{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"memtier-engine"},
            "executable":"/t/release/memtier-engine","fresh":true}"#;
        let found = artifact(&line.replace('\n', "")).unwrap();
        assert_eq!((found.name.as_str(), found.kind.as_str()), ("memtier-engine", "bin"));
        assert_eq!(found.executable, Path::new("/t/release/memtier-engine"));
        let library = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"x"},"executable":null}"#;
        for other in [library, r#"{"reason":"build-finished","success":true}"#, "test a ... ok", "", "[1]"] {
            assert_eq!(artifact(other), None);
        }
    }
}
