//! The header of one file: eight bytes of length, then JSON.

use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::error::SafetensorsError;

/// The format's own bound on a header.
const MAX_HEADER: u64 = 100_000_000;

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dtype {
    name: &'static str,
    bits: u32,
}

/// Every type the format has, by name and bits.
const DTYPES: [(&str, u32); 23] = [
    ("F4", 4),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
    ("BOOL", 8),
    ("U8", 8),
    ("I8", 8),
    ("F8_E5M2", 8),
    ("F8_E4M3", 8),
    ("F8_E8M0", 8),
    ("F8_E4M3FNUZ", 8),
    ("F8_E5M2FNUZ", 8),
    ("U16", 16),
    ("I16", 16),
    ("F16", 16),
    ("BF16", 16),
    ("U32", 32),
    ("I32", 32),
    ("F32", 32),
    ("U64", 64),
    ("I64", 64),
    ("F64", 64),
    ("C64", 64),
    ("C128", 128),
];

impl Dtype {
    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Dtype> {
        DTYPES.iter().find(|entry| entry.0 == name).map(|&(name, bits)| Dtype { name, bits })
    }

    /// The name in a header.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Bytes of so many elements; `None` when they are no whole number of bytes or past 64 bits.
    ///
    /// ```
    /// use memtier_model::safetensors::Dtype;
    /// assert_eq!(Dtype::from_name("BF16").and_then(|dtype| dtype.bytes(10)), Some(20));
    /// assert_eq!(Dtype::from_name("F4").and_then(|dtype| dtype.bytes(3)), None);
    /// ```
    pub fn bytes(self, elements: u64) -> Option<u64> {
        let bits = u128::from(elements) * u128::from(self.bits);
        bits.is_multiple_of(8).then(|| u64::try_from(bits / 8).ok()).flatten()
    }
}

/// A tensor of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub dtype: Dtype,
    /// Its dimensions, the innermost last.
    pub shape: Vec<u64>,
    /// Bytes of its data.
    pub bytes: u64,
    /// Where its data begins, in bytes from the end of the header.
    pub offset: u64,
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// A header's JSON in file order, so that a name that appears twice is seen.
struct Table(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Table, D::Error> {
        struct Rows;
        impl<'de> Visitor<'de> for Rows {
            type Value = Table;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Table, A::Error> {
                let mut rows = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<serde::de::IgnoredAny>()?;
                    } else {
                        rows.push((name, map.next_value()?));
                    }
                }
                Ok(Table(rows))
            }
        }
        deserializer.deserialize_map(Rows)
    }
}

/// Reads the header from the beginning of a file of `file_size` bytes.
///
/// # Errors
/// A [`SafetensorsError`] of a header: its length, its JSON, a tensor's type, size or place.
pub fn read_header(mut reader: impl Read, file_size: u64) -> Result<Vec<Tensor>, SafetensorsError> {
    let mut length = [0; 8];
    if file_size < 8 {
        return Err(SafetensorsError::HeaderLength { found: 0, file: file_size });
    }
    reader.read_exact(&mut length).map_err(SafetensorsError::Read)?;
    let found = u64::from_le_bytes(length);
    if found > file_size - 8 {
        return Err(SafetensorsError::HeaderLength { found, file: file_size });
    }
    if found > MAX_HEADER {
        return Err(SafetensorsError::HeaderLimit { found, limit: MAX_HEADER });
    }
    let mut json = Vec::new();
    let read = reader.take(found).read_to_end(&mut json).map_err(SafetensorsError::Read)? as u64;
    if read < found {
        return Err(SafetensorsError::HeaderLength { found, file: 8 + read });
    }
    parse_header(&json, file_size - 8 - found)
}

/// Parses a header's JSON, for a file with `data` bytes after it.
///
/// ```
/// use memtier_model::safetensors::parse_header;
/// let json = br#"{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}"#;
/// assert_eq!(parse_header(json, 12)?[0].bytes, 12);
/// assert!(parse_header(json, 11).is_err());
/// # Ok::<(), memtier_model::safetensors::SafetensorsError>(())
/// ```
///
/// # Errors
/// As [`read_header`].
pub fn parse_header(json: &[u8], data: u64) -> Result<Vec<Tensor>, SafetensorsError> {
    let table: Table = serde_json::from_slice(json).map_err(|error| SafetensorsError::Header(error.to_string()))?;
    let mut tensors = table.0.into_iter().map(|row| tensor(row, data)).collect::<Result<Vec<_>, _>>()?;
    tensors.sort_by(|a, b| (a.offset, a.bytes, &a.name).cmp(&(b.offset, b.bytes, &b.name)));
    let mut end = 0;
    for tensor in &tensors {
        if tensor.offset < end {
            return Err(misplaced(tensor, data, "where another tensor is"));
        }
        end = tensor.offset + tensor.bytes;
    }
    let mut names: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(SafetensorsError::DuplicateTensor { tensor: pair[0].to_owned() });
    }
    Ok(tensors)
}

fn misplaced(tensor: &Tensor, data: u64, why: &'static str) -> SafetensorsError {
    let (begin, end) = (tensor.offset, tensor.offset.saturating_add(tensor.bytes));
    SafetensorsError::Place { tensor: tensor.name.clone(), begin, end, data, why }
}

fn tensor((name, entry): (String, Entry), data: u64) -> Result<Tensor, SafetensorsError> {
    let Some(dtype) = Dtype::from_name(&entry.dtype) else {
        return Err(SafetensorsError::UnknownDtype { tensor: name, found: entry.dtype });
    };
    let (begin, end) = entry.data_offsets;
    let bytes = end.saturating_sub(begin);
    let tensor = Tensor { name, dtype, shape: entry.shape, bytes, offset: begin };
    if begin > end {
        return Err(SafetensorsError::Place {
            tensor: tensor.name,
            begin,
            end,
            data,
            why: "which ends before it begins",
        });
    }
    if end > data {
        return Err(misplaced(&tensor, data, "which is past the end"));
    }
    let elements = tensor.shape.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim));
    let needed = elements.and_then(|elements| dtype.bytes(elements));
    if needed != Some(bytes) {
        let Tensor { name, shape, .. } = tensor;
        return Err(SafetensorsError::Size { tensor: name, shape, dtype: dtype.name(), found: bytes, needed });
    }
    Ok(tensor)
}
