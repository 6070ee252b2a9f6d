//! The header of one file.

use std::borrow::Cow;
use std::io::{Read, Seek};

use super::error::GgufError;
use super::limits::Limits;
use super::metadata::{Index, Metadata};
use super::parse::{Parsed, parse};
use super::source::{Growing, Prefix};
use super::tensor::TensorInfo;

/// The header of one GGUF file: metadata and tensor table, and nothing of the tensors' data.
///
/// A model may be split over several files; [`Gguf`](super::Gguf) puts them together, and is what most callers want.
#[derive(Clone, Debug)]
pub struct Header<'a> {
    bytes: Cow<'a, [u8]>,
    index: Index,
    tensors: Vec<TensorInfo>,
    version: u32,
    alignment: u64,
    data_offset: u64,
    file_size: u64,
}

impl<'a> Header<'a> {
    /// Parses a file that is in memory as a whole.
    ///
    /// # Errors
    /// Any [`GgufError`] but those of input and output and of split models.
    pub fn parse(file: &'a [u8]) -> Result<Header<'a>, GgufError> {
        Header::parse_prefix(file, file.len() as u64, &Limits::default())
    }

    /// Parses the first bytes of a file of `file_size` bytes.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and [`GgufError::PrefixTooShort`] when the header is longer than `prefix`: the
    /// error says how many bytes are needed next.
    pub fn parse_prefix(prefix: &'a [u8], file_size: u64, limits: &Limits) -> Result<Header<'a>, GgufError> {
        let prefix = &prefix[..prefix.len().min(usize::try_from(file_size).unwrap_or(usize::MAX))];
        let mut source = Prefix { bytes: prefix, file_size };
        let parsed = parse(&mut source, limits)?;
        // The parser has read this far.
        let bytes = &prefix[..parsed.header_len.min(prefix.len())];
        Ok(Header::new(parsed, Cow::Borrowed(bytes), file_size))
    }

    fn new(parsed: Parsed, bytes: Cow<'a, [u8]>, file_size: u64) -> Header<'a> {
        let Parsed { version, index, tensors, header_len: _, data_offset, alignment } = parsed;
        Header { bytes, index, tensors, version, alignment, data_offset, file_size }
    }

    /// The same header with its own copy of the bytes.
    pub fn into_owned(self) -> Header<'static> {
        Header {
            bytes: Cow::Owned(self.bytes.into_owned()),
            index: self.index,
            tensors: self.tensors,
            version: self.version,
            alignment: self.alignment,
            data_offset: self.data_offset,
            file_size: self.file_size,
        }
    }

    /// The metadata.
    pub fn metadata(&self) -> Metadata<'_> {
        Metadata::new(&self.index, &self.bytes)
    }

    /// The tensors of this file, in the order of its table.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    pub(crate) fn take_tensors(&mut self) -> Vec<TensorInfo> {
        std::mem::take(&mut self.tensors)
    }

    /// GGUF's version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The alignment of tensor data in bytes.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Where tensor data begins, in bytes from the beginning of the file.
    pub fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// Size of the file in bytes.
    pub fn file_size(&self) -> u64 {
        self.file_size
    }

    /// Bytes of metadata and tensor table.
    pub fn header_len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl Header<'static> {
    /// Reads the header from the beginning of `reader`, and not much more: the reads double in size until the header
    /// is in.
    ///
    /// # Errors
    /// Any [`GgufError`] but those of opening and of split models.
    pub fn read(reader: impl Read + Seek) -> Result<Header<'static>, GgufError> {
        Header::read_with(reader, &Limits::default())
    }

    /// As [`read`](Self::read), with other limits.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_with(reader: impl Read + Seek, limits: &Limits) -> Result<Header<'static>, GgufError> {
        let mut source = Growing::new(reader)?;
        let parsed = parse(&mut source, limits)?;
        let file_size = super::source::Source::file_size(&source);
        let bytes = source.into_prefix(parsed.header_len);
        Ok(Header::new(parsed, bytes, file_size))
    }
}
