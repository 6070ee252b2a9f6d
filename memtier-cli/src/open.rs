//! Opening a model by path, with an error that says what the path is instead.

use std::fs;
use std::io::Read;
use std::path::Path;

use memtier_model::safetensors::Checkpoint;
use memtier_model::{Gguf, GgufError, ModelLayout};

use crate::suggest::nearest;

/// Reads a model's header: a GGUF file, one part of a split one, or a folder of safetensors with a `config.json`.
///
/// # Errors
/// One line that names the path and what to do.
pub fn layout(path: &Path) -> Result<ModelLayout, String> {
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| missing(path, &error))?;
    if metadata.is_dir() {
        if !path.join("config.json").exists() {
            return Err(folder_without_model(path));
        }
        let checkpoint = Checkpoint::open(path).map_err(|error| format!("{shown}: {error}"))?;
        return checkpoint.layout().map_err(|error| format!("{shown}: {error}"));
    }
    if path.extension().is_some_and(|extension| extension == "safetensors") {
        return Err(format!("{shown} is one file of a checkpoint; give its folder, with the config.json"));
    }
    ModelLayout::from_gguf(&gguf(path)?).map_err(|error| format!("{shown}: {error}"))
}

/// Reads the header of a GGUF file that is no whole model: a projector, an adapter.
///
/// # Errors
/// As [`layout`].
pub fn gguf(path: &Path) -> Result<Gguf<'static>, String> {
    if path.is_dir() {
        return Err(format!("{} is a folder; give the .gguf file in it", path.display()));
    }
    Gguf::open(path).map_err(|error| match error {
        GgufError::Open { path, source } => missing(&path, &source),
        GgufError::WrongMagic { .. } => {
            format!("{}: {}", path.display(), what_else(path).unwrap_or_else(|| error.to_string()))
        }
        other => format!("{}: {other}", path.display()),
    })
}

fn missing(path: &Path, error: &std::io::Error) -> String {
    let near = || {
        let name = path.file_name()?.to_str()?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let names: Vec<String> = fs::read_dir(folder)
            .ok()?
            .flatten()
            .take(1000)
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        let near = nearest(name, names.iter().map(String::as_str))?;
        Some(format!(" (did you mean \"{}\"?)", folder.join(near).display()))
    };
    let remedy = near().unwrap_or_else(|| match error.kind() {
        std::io::ErrorKind::NotFound => "; check the path".to_owned(),
        _ => String::new(),
    });
    format!("cannot read {}: {error}{remedy}", path.display())
}

fn folder_without_model(path: &Path) -> String {
    let files: Vec<String> = fs::read_dir(path)
        .map(|entries| {
            entries.flatten().take(10_000).filter_map(|entry| entry.file_name().into_string().ok()).collect()
        })
        .unwrap_or_default();
    match files.iter().filter(|name| name.ends_with(".gguf")).min() {
        Some(name) => format!("{} is a folder; give a file in it, as {}", path.display(), path.join(name).display()),
        None => {
            format!("{} is a folder without config.json; give a .gguf file or a folder of safetensors", path.display())
        }
    }
}

/// What a file that is no GGUF is instead, from its first bytes.
fn what_else(path: &Path) -> Option<String> {
    let mut start = Vec::new();
    fs::File::open(path).ok()?.take(512).read_to_end(&mut start).ok()?;
    let text = String::from_utf8_lossy(&start).to_lowercase();
    let text = text.trim_start();
    let is = |what: &str| Some(format!("this is {what}, not a GGUF file: fetch the file itself again"));
    if text.starts_with("<!doctype html") || text.starts_with("<html") {
        is("a web page (often an error or a log-in)")
    } else if text.starts_with("version https://git-lfs") {
        is("a Git LFS pointer (run `git lfs pull`)")
    } else if start.starts_with(b"PK\x03\x04") {
        is("a zip archive (unpack it)")
    } else if text.starts_with('{') || start.get(8) == Some(&b'{') {
        is("JSON or a safetensors file (give the folder)")
    } else {
        None
    }
}
