//! The model file, mapped: only the pages that a tensor is packed from are ever read.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use memmap2::{Advice, Mmap};
use memtier_model::{Gguf, TensorInfo};

use crate::EngineError;

/// A model file (or the parts of a split one): its header, and its tensors' bytes.
#[derive(Debug)]
pub struct ModelFile {
    path: PathBuf,
    gguf: Gguf<'static>,
    parts: Vec<Mmap>,
}

impl ModelFile {
    /// Opens and maps a GGUF by its path, or by the path of any of its parts.
    ///
    /// # Errors
    /// [`EngineError::File`] for a broken header, [`EngineError::Map`] when the system refuses.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, EngineError> {
        let path = path.as_ref().to_owned();
        let gguf = Gguf::open(&path).map_err(|source| EngineError::File { path: path.clone(), source })?;
        let map = |path: &PathBuf| -> Result<Mmap, EngineError> {
            let refused = |source| EngineError::Map { path: path.clone(), source };
            let file = File::open(path).map_err(refused)?;
            // SAFETY: the mapping is private and read-only. If another process truncates the file while the model loads, the
            // process is ended by the system (SIGBUS): no memory of ours is touched. Nothing reads it after the load.
            let map = unsafe { Mmap::map(&file) }.map_err(refused)?;
            // A hint; without it the load is only slower.
            let _ = map.advise(Advice::Sequential);
            Ok(map)
        };
        let parts = gguf.paths().iter().map(map).collect::<Result<_, _>>()?;
        Ok(ModelFile { path, gguf, parts })
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The header.
    pub fn gguf(&self) -> &Gguf<'static> {
        &self.gguf
    }

    /// A hash of all bytes of all its parts: the same for the same model, whatever it is called.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for part in &self.parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// A tensor's description and its bytes.
    pub fn tensor(&self, name: &str) -> Option<(&TensorInfo, &[u8])> {
        let tensor = self.gguf.tensor(name)?;
        let start = usize::try_from(tensor.offset).ok()?;
        let end = start.checked_add(usize::try_from(tensor.byte_len).ok()?)?;
        Some((tensor, self.parts.get(tensor.part)?.get(start..end)?))
    }
}
