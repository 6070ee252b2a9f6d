//! A writer of small GGUF files, for tests and tools: everything is kept in memory until it is written.
//!
//! Tensors may be [holes](GgufWriter::hole): they have a place in the table and in the file, and no data. A file of
//! holes has the header of a model of any size and takes a few kilobytes of disk.

mod tiny;

use std::fs::File;
use std::io::{self, Write};

use thiserror::Error;

use crate::gguf::{Shape, Value, ValueType};
use crate::tensor_type::TensorType;

pub use tiny::TinyModel;

/// Why a tensor cannot be written.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// More than four dimensions, a row that is no whole number of blocks, or a size that overflows.
    #[error("tensor \"{tensor}\" cannot have the shape {dims:?} as {tensor_type}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// The dimensions, row length first.
        dims: Vec<u64>,
        /// The type.
        tensor_type: TensorType,
    },
    /// Data of another length than type and shape say.
    #[error("tensor \"{tensor}\" takes {needed} bytes, and {given} were given")]
    Length {
        /// The tensor.
        tensor: String,
        /// Bytes that the type and shape take.
        needed: u64,
        /// Bytes given.
        given: usize,
    },
}

/// Builds a GGUF file: set keys, add tensors, then [`to_bytes`](Self::to_bytes) or [`write_to`](Self::write_to).
///
/// The writer does not check keys, so that tests can write files that are wrong.
///
/// ```
/// use memtier_model::{Gguf, TensorType, write::GgufWriter};
/// let mut file = GgufWriter::new();
/// file.string("general.architecture", "llama").u32("llama.block_count", 2).f32s("scores", &[0.5, 1.0]);
/// file.tensor_f32("output_norm.weight", &[3], &[1.0, 2.0, 3.0])?;
/// let bytes = file.to_bytes();
/// assert_eq!(Gguf::from_bytes(&bytes)?.metadata().u32("llama.block_count")?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct GgufWriter {
    version: u32,
    alignment: u64,
    entries: Vec<(String, ValueType, Vec<u8>)>,
    tensors: Vec<Tensor>,
}

#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    dims: Vec<u64>,
    tensor_type: TensorType,
    /// Bytes it takes in the file.
    len: u64,
    /// `None` for a hole.
    data: Option<Vec<u8>>,
}

impl Default for GgufWriter {
    fn default() -> Self {
        GgufWriter::new()
    }
}

impl GgufWriter {
    /// An empty file of version 3 with an alignment of 32 bytes.
    pub fn new() -> Self {
        GgufWriter { version: 3, alignment: 32, entries: Vec::new(), tensors: Vec::new() }
    }

    /// Writes another version number; the layout is that of versions 2 and 3.
    pub fn version(&mut self, version: u32) -> &mut Self {
        self.version = version;
        self
    }

    /// Aligns tensor data to `bytes`, a power of two, and says so in `general.alignment`.
    pub fn alignment(&mut self, bytes: u32) -> &mut Self {
        self.alignment = u64::from(bytes.max(1));
        self.u32("general.alignment", bytes)
    }

    /// Adds a value that is already encoded.
    pub fn raw(&mut self, key: &str, value_type: ValueType, encoded: Vec<u8>) -> &mut Self {
        self.entries.push((key.to_owned(), value_type, encoded));
        self
    }

    /// Adds a value of another file, whatever its type.
    ///
    /// ```
    /// use memtier_model::{Gguf, write::GgufWriter};
    /// let bytes = GgufWriter::new().u32("a", 1).strings("b", &["x", "y"]).to_bytes();
    /// let mut copy = GgufWriter::new();
    /// for (key, value) in Gguf::from_bytes(&bytes)?.metadata().iter().filter(|(key, _)| *key != "a") {
    ///     copy.value(key, value);
    /// }
    /// assert_eq!(Gguf::from_bytes(&copy.to_bytes())?.metadata().array("b")?.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn value(&mut self, key: &str, value: Value<'_>) -> &mut Self {
        let mut encoded = Vec::new();
        value.encode(&mut encoded);
        self.raw(key, value.value_type(), encoded)
    }

    /// Adds an integer.
    pub fn u32(&mut self, key: &str, value: u32) -> &mut Self {
        self.raw(key, ValueType::U32, value.to_le_bytes().to_vec())
    }

    /// Adds an integer.
    pub fn u64(&mut self, key: &str, value: u64) -> &mut Self {
        self.raw(key, ValueType::U64, value.to_le_bytes().to_vec())
    }

    /// Adds a number.
    pub fn f32(&mut self, key: &str, value: f32) -> &mut Self {
        self.raw(key, ValueType::F32, value.to_le_bytes().to_vec())
    }

    /// Adds a boolean.
    pub fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.raw(key, ValueType::Bool, vec![u8::from(value)])
    }

    /// Adds a text.
    pub fn string(&mut self, key: &str, value: &str) -> &mut Self {
        self.raw(key, ValueType::String, encode_string(value.as_bytes()))
    }

    fn array(
        &mut self,
        key: &str,
        element: ValueType,
        len: usize,
        encoded: impl Iterator<Item = Vec<u8>>,
    ) -> &mut Self {
        let mut value = element.id().to_le_bytes().to_vec();
        value.extend((len as u64).to_le_bytes());
        encoded.for_each(|element| value.extend(element));
        self.raw(key, ValueType::Array, value)
    }

    /// Adds an array of integers.
    pub fn u32s(&mut self, key: &str, values: &[u32]) -> &mut Self {
        self.array(key, ValueType::U32, values.len(), values.iter().map(|v| v.to_le_bytes().to_vec()))
    }

    /// Adds an array of integers.
    pub fn i32s(&mut self, key: &str, values: &[i32]) -> &mut Self {
        self.array(key, ValueType::I32, values.len(), values.iter().map(|v| v.to_le_bytes().to_vec()))
    }

    /// Adds an array of numbers.
    pub fn f32s(&mut self, key: &str, values: &[f32]) -> &mut Self {
        self.array(key, ValueType::F32, values.len(), values.iter().map(|v| v.to_le_bytes().to_vec()))
    }

    /// Adds an array of booleans.
    pub fn bools(&mut self, key: &str, values: &[bool]) -> &mut Self {
        self.array(key, ValueType::Bool, values.len(), values.iter().map(|&v| vec![u8::from(v)]))
    }

    /// Adds an array of texts.
    pub fn strings<S: AsRef<[u8]>>(&mut self, key: &str, values: &[S]) -> &mut Self {
        self.array(key, ValueType::String, values.len(), values.iter().map(|v| encode_string(v.as_ref())))
    }

    /// Adds a tensor whose data is already encoded; `dims` begin with the row length.
    ///
    /// # Errors
    /// [`WriteError`] when shape, type and length of the data do not agree; nothing is added then.
    pub fn tensor(
        &mut self,
        name: &str,
        dims: &[u64],
        tensor_type: TensorType,
        data: Vec<u8>,
    ) -> Result<&mut Self, WriteError> {
        let needed = byte_len(name, dims, tensor_type)?;
        if needed != data.len() as u64 {
            return Err(WriteError::Length { tensor: name.to_owned(), needed, given: data.len() });
        }
        let (name, dims) = (name.to_owned(), dims.to_vec());
        self.tensors.push(Tensor { name, dims, tensor_type, len: needed, data: Some(data) });
        Ok(self)
    }

    /// Adds a tensor without data: zeros in the file, which [`write_sparse`](Self::write_sparse) does not write.
    ///
    /// ```
    /// use memtier_model::{Gguf, Header, TensorType, gguf::Limits, write::GgufWriter};
    /// let mut file = GgufWriter::new();
    /// file.string("general.architecture", "llama").hole("w", &[1 << 16, 1 << 16], TensorType::F16)?;
    /// let (header, size) = (file.header_bytes(), file.file_size());
    /// assert!(header.len() < 200 && size > 8 << 30);
    /// let model = Gguf::from_headers(vec![Header::parse_prefix(&header, size, &Limits::default())?])?;
    /// assert_eq!(model.tensor_bytes(), 8 << 30);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`WriteError::Shape`] when the type cannot have the shape; nothing is added then.
    pub fn hole(&mut self, name: &str, dims: &[u64], tensor_type: TensorType) -> Result<&mut Self, WriteError> {
        let len = byte_len(name, dims, tensor_type)?;
        self.tensors.push(Tensor { name: name.to_owned(), dims: dims.to_vec(), tensor_type, len, data: None });
        Ok(self)
    }

    /// Adds a tensor of 32-bit floats.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor).
    pub fn tensor_f32(&mut self, name: &str, dims: &[u64], values: &[f32]) -> Result<&mut Self, WriteError> {
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(name, dims, TensorType::F32, data)
    }

    /// The file's bytes, holes filled with zeros.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.header_bytes();
        for tensor in &self.tensors {
            let end = out.len() + usize::try_from(tensor.len).unwrap_or(usize::MAX);
            out.extend(tensor.data.iter().flatten());
            out.resize(end, 0);
            self.pad(&mut out);
        }
        out
    }

    /// The file's bytes up to where tensor data begins: all that a reader of headers looks at.
    pub fn header_bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.entries.len() as u64).to_le_bytes());
        for (key, value_type, value) in &self.entries {
            out.extend(encode_string(key.as_bytes()));
            out.extend(value_type.id().to_le_bytes());
            out.extend(value);
        }
        let mut offset = 0_u64;
        for tensor in &self.tensors {
            out.extend(encode_string(tensor.name.as_bytes()));
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(tensor.tensor_type.id().to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset = self.aligned(offset + tensor.len);
        }
        self.pad(&mut out);
        out
    }

    /// Bytes of the whole file.
    pub fn file_size(&self) -> u64 {
        // ggml pads the last tensor too.
        self.tensors.iter().fold(self.header_bytes().len() as u64, |end, tensor| self.aligned(end + tensor.len))
    }

    fn aligned(&self, len: u64) -> u64 {
        len.next_multiple_of(self.alignment)
    }

    fn pad(&self, out: &mut Vec<u8>) {
        let len = usize::try_from(self.aligned(out.len() as u64)).unwrap_or(usize::MAX);
        out.resize(len, 0);
    }

    /// Writes the file.
    ///
    /// # Errors
    /// What `out` reports.
    pub fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        out.write_all(&self.to_bytes())
    }

    /// Writes the header into an empty file and gives the file its full size; no tensor's data is written, so every
    /// tensor reads as zeros and the file takes little disk where the file system knows holes.
    ///
    /// # Errors
    /// What the system reports.
    pub fn write_sparse(&self, mut file: &File) -> io::Result<()> {
        file.write_all(&self.header_bytes())?;
        file.set_len(self.file_size())
    }
}

/// Bytes of a tensor.
fn byte_len(name: &str, dims: &[u64], tensor_type: TensorType) -> Result<u64, WriteError> {
    Shape::new(dims)
        .and_then(|shape| tensor_type.row_bytes(shape.row())?.checked_mul(shape.rows()?))
        .ok_or_else(|| WriteError::Shape { tensor: name.to_owned(), dims: dims.to_vec(), tensor_type })
}

fn encode_string(text: &[u8]) -> Vec<u8> {
    let mut encoded = (text.len() as u64).to_le_bytes().to_vec();
    encoded.extend(text);
    encoded
}
