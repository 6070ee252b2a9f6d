//! A model: one file, or the parts of a split one.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::error::GgufError;
use super::header::Header;
use super::metadata::Metadata;
use super::split::{self, SplitError};
use super::tensor::TensorInfo;

/// A GGUF model: the metadata of its first file and the tensors of all its files.
///
/// ```no_run
/// let model = memtier_model::Gguf::open("model-00001-of-00003.gguf")?;
/// let weights: u64 = model.tensors().iter().map(|tensor| tensor.byte_len).sum();
/// println!("{} parts, {weights} bytes of weights", model.parts().len());
/// # Ok::<(), memtier_model::GgufError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gguf<'a> {
    parts: Vec<Header<'a>>,
    paths: Vec<PathBuf>,
    tensors: Vec<TensorInfo>,
    by_name: Vec<usize>,
}

impl Gguf<'static> {
    /// Opens a model by the path of its file, or of any of its parts when it is split.
    ///
    /// # Errors
    /// Any [`GgufError`]; of a split model, the first that any part shows.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf<'static>, GgufError> {
        let path = path.as_ref();
        let header = read(path)?;
        let (number, count) = split::stated(&header)?;
        if count == 1 {
            return Gguf::assemble(vec![header], vec![path.to_owned()]);
        }
        let paths = split::split_paths(path, number, count).ok_or_else(|| SplitError::NotNamedAsPart {
            path: path.to_owned(),
            part: number + 1,
            count,
        })?;
        let headers = paths.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
        Gguf::assemble(headers, paths)
    }
}

fn read(path: &Path) -> Result<Header<'static>, GgufError> {
    let file = File::open(path).map_err(|source| GgufError::Open { path: path.to_owned(), source })?;
    Header::read(file)
}

impl<'a> Gguf<'a> {
    /// A model whose only file is in memory.
    ///
    /// # Errors
    /// As [`Header::parse`], and when the file is one part of several.
    pub fn from_bytes(file: &'a [u8]) -> Result<Gguf<'a>, GgufError> {
        Gguf::from_headers(vec![Header::parse(file)?])
    }

    /// A model from the headers of its parts, in order; one header for a model that is not split.
    ///
    /// # Errors
    /// A [`SplitError`] when they are not the parts of one model, and [`GgufError::DuplicateTensor`].
    pub fn from_headers(parts: Vec<Header<'a>>) -> Result<Gguf<'a>, GgufError> {
        Gguf::assemble(parts, Vec::new())
    }

    fn assemble(mut parts: Vec<Header<'a>>, paths: Vec<PathBuf>) -> Result<Gguf<'a>, GgufError> {
        split::check_parts(&parts)?;
        let mut tensors = Vec::new();
        for (part, header) in parts.iter_mut().enumerate() {
            tensors.extend(header.take_tensors().into_iter().map(|tensor| TensorInfo { part, ..tensor }));
        }
        let mut by_name: Vec<usize> = (0..tensors.len()).collect();
        by_name.sort_by(|&a, &b| tensors[a].name.cmp(&tensors[b].name));
        for pair in by_name.windows(2) {
            let (first, second) = (&tensors[pair[0]], &tensors[pair[1]]);
            if first.name == second.name {
                return Err(GgufError::DuplicateTensor { tensor: second.name.clone(), offset: second.offset });
            }
        }
        Ok(Gguf { parts, paths, tensors, by_name })
    }

    /// The metadata of the first file.
    pub fn metadata(&self) -> Metadata<'_> {
        self.parts[0].metadata()
    }

    /// The tensors of all files, in the order of the files and of their tables.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let at = self.by_name.binary_search_by(|&index| self.tensors[index].name.as_str().cmp(name)).ok()?;
        Some(&self.tensors[self.by_name[at]])
    }

    /// The headers of the files. Their own tensor tables are empty: the tensors have moved into the model's.
    pub fn parts(&self) -> &[Header<'a>] {
        &self.parts
    }

    /// The paths of the files, when the model was opened by path; otherwise none.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Bytes of all tensors, without the padding between them.
    pub fn tensor_bytes(&self) -> u64 {
        // Each tensor is within its file and none overlap, so the sum is below the sum of the files' sizes.
        self.tensors.iter().map(|tensor| tensor.byte_len).fold(0, u64::saturating_add)
    }
}
