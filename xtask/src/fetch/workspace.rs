//! The temporary folder of a fetch, one at a time per cache.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::paths;

/// A temporary folder inside the cache, held under the cache's lock; gone when dropped.
///
/// The lock is the operating system's (it ends with the process, however that ends); the file it is taken on stays.
#[derive(Debug)]
pub(crate) struct Workspace {
    folder: PathBuf,
    // Held for its lock.
    _lock: File,
}

impl Workspace {
    /// Waits for the lock, sweeps what interrupted fetches left, and makes an empty folder.
    pub(crate) fn claim(cache: &Path) -> Result<Self, Failure> {
        paths::create(cache)?;
        let path = cache.join("fetch.lock");
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = opened.map_err(|error| Failure::io("open", &path, &error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!("another process is fetching into {}: waiting for it", cache.display());
                lock.lock().map_err(|error| Failure::io("lock", &path, &error))?;
            }
            Err(TryLockError::Error(error)) => return Err(Failure::io("lock", &path, &error)),
        }
        let all = cache.join("fetching");
        // Whatever is in there belongs to a process that is gone: we hold the lock.
        remove(&all)?;
        // Its own name, so that a pip that outlived its parent cannot write into ours.
        let folder = all.join(std::process::id().to_string());
        paths::create(&folder)?;
        Ok(Self { folder, _lock: lock })
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // The next fetch sweeps what cannot be removed now.
        let _ = remove(&self.folder);
        let _ = self.folder.parent().map(fs::remove_dir);
    }
}

fn remove(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::io("empty the folder", folder, &error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interrupted_fetch_left_is_swept_and_the_folder_goes_with_its_owner() {
        let cache = tempfile::tempdir().unwrap();
        let cache = cache.path();
        fs::create_dir_all(cache.join("fetching/pip")).unwrap();
        fs::write(cache.join("fetching/pip/half.whl"), "half").unwrap();
        let workspace = Workspace::claim(cache).unwrap();
        assert_eq!(fs::read_dir(workspace.folder()).unwrap().count(), 0);
        let folder = workspace.folder().to_path_buf();
        drop(workspace);
        assert!(!folder.exists());
    }
}
