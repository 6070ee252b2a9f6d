//! What can be wrong with a checkpoint.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a checkpoint cannot be used. Names the file, and the tensor or the offset at fault.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// The system refused.
    #[error("cannot read {path}: {source}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// In this file.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<SafetensorsError>,
    },
    /// The header could not be read.
    #[error("reading the header failed: {0}")]
    Read(std::io::Error),
    /// A file of JSON that is longer than any model's.
    #[error("{path} has {found} bytes, above the limit of {limit}: this is no model's")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        found: u64,
        /// The most that is read.
        limit: u64,
    },
    /// A file of JSON that is not what it should be.
    #[error("{path} is not readable: {reason}; fetch it again")]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// No tensors, or no way to tell which file has them.
    #[error(
        "{folder} has no model.safetensors.index.json and {found} .safetensors files where one belongs: fetch the index, \
         or leave one file"
    )]
    WhichFile {
        /// The folder.
        folder: PathBuf,
        /// Files found.
        found: usize,
    },
    /// The first eight bytes are no length of a header.
    #[error("the header is said to have {found} bytes, and the file has {file}: not a safetensors file, or cut short")]
    HeaderLength {
        /// The length at byte 0.
        found: u64,
        /// Bytes of the file.
        file: u64,
    },
    /// The header is longer than any model's.
    #[error("the header has {found} bytes, above the limit of {limit}: the file is damaged or hostile")]
    HeaderLimit {
        /// The length at byte 0.
        found: u64,
        /// The most that is read.
        limit: u64,
    },
    /// The header is not the JSON it should be.
    #[error("the header is no table of tensors: {0}")]
    Header(String),
    /// An element type that is not known.
    #[error("tensor \"{tensor}\" has the unknown type \"{found}\": use a newer memtier")]
    UnknownDtype {
        /// The tensor.
        tensor: String,
        /// Its type.
        found: String,
    },
    /// Shape and type take other bytes than the tensor has.
    #[error("tensor \"{tensor}\" has {found} bytes, and its shape {shape:?} as {dtype} takes {needed:?}: damaged")]
    Size {
        /// The tensor.
        tensor: String,
        /// Its dimensions.
        shape: Vec<u64>,
        /// Its type.
        dtype: &'static str,
        /// Bytes of its data.
        found: u64,
        /// Bytes of shape and type; `None` past 64 bits.
        needed: Option<u64>,
    },
    /// A tensor outside the file's data, or one that shares bytes with another.
    #[error(
        "tensor \"{tensor}\" is at {begin}..{end} of {data} bytes of data, {why}: the file is damaged or cut short"
    )]
    Place {
        /// The tensor.
        tensor: String,
        /// Where it begins in the data.
        begin: u64,
        /// Where it ends.
        end: u64,
        /// Bytes of data in the file.
        data: u64,
        /// What is wrong with that.
        why: &'static str,
    },
    /// Two tensors with one name.
    #[error("tensor \"{tensor}\" appears twice: which one counts is unknown")]
    DuplicateTensor {
        /// The name.
        tensor: String,
    },
    /// The index says that a tensor is in a file, and it is not.
    #[error("the index says that \"{tensor}\" is in {path}, and it is not: fetch both again")]
    MissingTensor {
        /// The tensor.
        tensor: String,
        /// The file.
        path: PathBuf,
    },
}

impl SafetensorsError {
    pub(super) fn in_file(self, path: &Path) -> SafetensorsError {
        SafetensorsError::File { path: path.to_owned(), source: Box::new(self) }
    }
}
