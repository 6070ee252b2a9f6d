//! Where things are: the repository, the cache, what cargo built.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The repository's root.
pub fn root() -> PathBuf {
    // Set by `cargo run`; the compiled-in value only serves a binary that somebody starts by hand.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&manifest).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// The cargo that started us, so that a `+toolchain` on the command line holds for its children too.
pub fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Where logs and staged files go. Beside cargo's own, so that `cargo clean` takes them along.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The folder of models and of the oracle's Python environment: `MEMTIER_CACHE`, or `~/.cache/memtier`.
///
/// Absolute, because children run in other working directories. It is not created here.
///
/// # Errors
/// Neither variable nor home directory is known.
pub fn cache() -> Result<PathBuf, Failure> {
    cache_from(env::var_os("MEMTIER_CACHE"), env::var_os("HOME").or_else(|| env::var_os("USERPROFILE")))
}

fn cache_from(given: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, Failure> {
    let folder = match (given.filter(|path| !path.is_empty()), home.filter(|path| !path.is_empty())) {
        (Some(given), _) => PathBuf::from(given),
        (None, Some(home)) => Path::new(&home).join(".cache/memtier"),
        (None, None) => {
            return Err(Failure::new("no home directory is known; set MEMTIER_CACHE to a folder for the models"));
        }
    };
    std::path::absolute(&folder).map_err(|error| Failure::io("use", &folder, &error))
}

/// Creates a folder and its parents.
///
/// # Errors
/// What the system said, with the remedy.
pub fn create(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::io("create the folder", folder, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_variable_says_or_at_home() {
        let home = Some(OsString::from("/home/me"));
        assert_eq!(cache_from(Some("/data".into()), home.clone()).unwrap(), Path::new("/data"));
        assert_eq!(cache_from(Some("".into()), home.clone()).unwrap(), Path::new("/home/me/.cache/memtier"));
        assert_eq!(cache_from(None, home).unwrap(), Path::new("/home/me/.cache/memtier"));
        assert!(cache_from(None, None).unwrap_err().message().contains("set MEMTIER_CACHE"));
        assert!(cache_from(Some("here".into()), None).unwrap().is_absolute());
    }
}
