//! The parser of one header: walks it once and records where things are.

use super::error::GgufError;
use super::limits::{Limits, MAX_DIMENSIONS};
use super::metadata::{Entry, Index, Metadata};
use super::source::Source;
use super::tensor::{Shape, TensorInfo};
use super::value::ValueType;
use crate::tensor_type::TensorType;

/// What a header says, without its bytes.
pub(crate) struct Parsed {
    pub(crate) version: u32,
    pub(crate) index: Index,
    pub(crate) tensors: Vec<TensorInfo>,
    /// Bytes up to the end of the tensor table.
    pub(crate) header_len: usize,
    /// Where the first tensor may begin.
    pub(crate) data_offset: u64,
    pub(crate) alignment: u64,
}

/// GGUF's alignment where a file names none.
const DEFAULT_ALIGNMENT: u64 = 32;

pub(crate) fn parse(source: &mut dyn Source, limits: &Limits) -> Result<Parsed, GgufError> {
    let mut cursor = Cursor { source, at: 0, limits };
    let version = cursor.magic_and_version()?;
    let tensor_count = cursor.count("the number of tensors", limits.tensors, MIN_TENSOR_BYTES)?;
    let entry_count = cursor.count("the number of metadata entries", limits.metadata_entries, MIN_ENTRY_BYTES)?;

    let mut entries = Vec::new();
    for _ in 0..entry_count {
        entries.push(cursor.entry()?);
    }
    let index = Index::new(entries)?;

    let mut tensors = Vec::new();
    for _ in 0..tensor_count {
        tensors.push(cursor.tensor()?);
    }

    let header_end = cursor.at;
    let header_len = usize::try_from(header_end).unwrap_or(usize::MAX);
    let alignment = alignment(&index, cursor.source.prefix(header_end)?)?;
    // Neither sum can overflow: the header is within the limit, the alignment at most 1 GiB.
    let data_offset = header_end.next_multiple_of(alignment);
    place(&mut tensors, data_offset, alignment, cursor.source.file_size())?;
    Ok(Parsed { version, index, tensors, header_len, data_offset, alignment })
}

/// Key length, a key of one byte, type, value of one byte.
const MIN_ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;
/// Name length, no name, number of dimensions, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

fn alignment(index: &Index, bytes: &[u8]) -> Result<u64, GgufError> {
    let found = Metadata::new(index, bytes).optional::<u64>("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
    if !found.is_power_of_two() || found > 1 << 30 {
        return Err(GgufError::BadAlignment { found });
    }
    Ok(found)
}

/// Turns offsets within the data section into offsets within the file, and checks that each tensor is inside the
/// file and that none share bytes.
fn place(tensors: &mut [TensorInfo], data_offset: u64, alignment: u64, file_size: u64) -> Result<(), GgufError> {
    for tensor in &mut *tensors {
        if !tensor.offset.is_multiple_of(alignment) {
            return Err(GgufError::MisalignedTensor { tensor: tensor.name.clone(), offset: tensor.offset, alignment });
        }
        let start = data_offset.saturating_add(tensor.offset);
        let needed = start.saturating_add(tensor.byte_len);
        if needed > file_size {
            return Err(GgufError::TensorPastEnd { tensor: tensor.name.clone(), needed, found: file_size });
        }
        tensor.offset = start;
    }
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_unstable_by_key(|tensor| tensor.offset);
    for pair in order.windows(2) {
        if let [first, second] = pair
            && first.offset + first.byte_len > second.offset
        {
            return Err(GgufError::OverlappingTensors {
                first: first.name.clone(),
                second: second.name.clone(),
                offset: second.offset,
            });
        }
    }
    Ok(())
}

struct Cursor<'s> {
    source: &'s mut dyn Source,
    at: u64,
    limits: &'s Limits,
}

impl Cursor<'_> {
    /// The next `len` bytes, after checking them against the limit and the file's size.
    fn take(&mut self, len: u64, what: &'static str) -> Result<&[u8], GgufError> {
        let (offset, end) = (self.at, self.at.saturating_add(len));
        let available = self.source.file_size();
        if end > available {
            return Err(GgufError::Truncated { offset, what, needed: end, available });
        }
        let limit = self.limits.header_bytes;
        if end > limit {
            return Err(GgufError::Limit { offset, what: "the length of the header", found: end, limit });
        }
        self.at = end;
        let too_short = GgufError::PrefixTooShort { needed: end, given: 0 };
        let (Ok(from), Ok(to)) = (usize::try_from(offset), usize::try_from(end)) else { return Err(too_short) };
        self.source.prefix(end)?.get(from..to).ok_or(too_short)
    }

    fn fixed<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N as u64, what)?);
        Ok(bytes)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        self.fixed(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        self.fixed(what).map(u64::from_le_bytes)
    }

    fn magic_and_version(&mut self) -> Result<u32, GgufError> {
        let magic: [u8; 4] = self.fixed("the magic")?;
        if magic != *b"GGUF" {
            return Err(GgufError::WrongMagic { found: magic });
        }
        match self.u32("the version")? {
            version @ (2 | 3) => Ok(version),
            version if matches!(version.swap_bytes(), 1..=3) => {
                Err(GgufError::BigEndian { version: version.swap_bytes() })
            }
            version => Err(GgufError::UnsupportedVersion { version }),
        }
    }

    /// A count of items that take at least `min_bytes` each.
    fn count(&mut self, what: &'static str, limit: u64, min_bytes: u64) -> Result<u64, GgufError> {
        let offset = self.at;
        let found = self.u64(what)?;
        if found > limit {
            return Err(GgufError::Limit { offset, what, found, limit });
        }
        self.check_room(found, min_bytes, what)?;
        Ok(found)
    }

    /// Whether the rest of the file can hold `count` items of at least `min_bytes`.
    fn check_room(&self, count: u64, min_bytes: u64, what: &'static str) -> Result<(), GgufError> {
        let needed = self.at.saturating_add(count.saturating_mul(min_bytes));
        let available = self.source.file_size();
        if needed > available {
            return Err(GgufError::Truncated { offset: self.at, what, needed, available });
        }
        Ok(())
    }

    /// A key or a tensor name.
    fn name(&mut self, what: &'static str) -> Result<String, GgufError> {
        let offset = self.at;
        let len = self.u64(what)?;
        let limit = self.limits.name_bytes;
        if len > limit {
            return Err(GgufError::Limit { offset, what, found: len, limit });
        }
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| GgufError::NotUtf8 { offset: offset + 8, what })
    }

    fn value_type(&mut self, key: &str) -> Result<ValueType, GgufError> {
        let offset = self.at;
        let found = self.u32("a value type")?;
        ValueType::from_id(found).ok_or_else(|| GgufError::UnknownValueType { key: key.to_owned(), offset, found })
    }

    fn entry(&mut self) -> Result<Entry, GgufError> {
        let offset = self.at;
        let key = self.name("a metadata key")?;
        let value_type = self.value_type(&key)?;
        let start = self.at;
        match value_type {
            ValueType::Array => self.skip_array(&key)?,
            other => self.skip(other, 1, &key)?,
        }
        let range = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        Ok(Entry { key, offset, value_type, start: range(start), end: range(self.at) })
    }

    fn skip_array(&mut self, key: &str) -> Result<(), GgufError> {
        let offset = self.at;
        let element = self.value_type(key)?;
        if element == ValueType::Array {
            return Err(GgufError::NestedArray { key: key.to_owned(), offset });
        }
        let count = self.u64("the length of an array")?;
        self.check_room(count, element.min_bytes(), "an array")?;
        self.skip(element, count, key)
    }

    /// Walks past `count` values of a type other than an array.
    fn skip(&mut self, value_type: ValueType, count: u64, key: &str) -> Result<(), GgufError> {
        match value_type {
            ValueType::String => {
                for _ in 0..count {
                    let len = self.u64("the length of a string")?;
                    self.take(len, "a string")?;
                }
            }
            ValueType::Bool => {
                let offset = self.at;
                let bytes = self.take(count, "a boolean")?;
                if let Some(at) = bytes.iter().position(|&byte| byte > 1) {
                    let found = bytes[at];
                    return Err(GgufError::BadBool { key: key.to_owned(), offset: offset + at as u64, found });
                }
            }
            number => {
                self.take(count.saturating_mul(number.min_bytes()), "a metadata value")?;
            }
        }
        Ok(())
    }

    /// One line of the tensor table; its offset is still within the data section.
    fn tensor(&mut self) -> Result<TensorInfo, GgufError> {
        let name = self.name("a tensor name")?;
        let (shape, shape_offset) = self.shape(&name)?;

        let offset = self.at;
        let id = self.u32("a tensor type")?;
        let Some(tensor_type) = TensorType::from_id(id) else {
            return Err(match TensorType::removed_name(id) {
                Some(removed) => GgufError::RemovedTensorType { tensor: name, name: removed },
                None => GgufError::UnknownTensorType { tensor: name, offset, found: id },
            });
        };
        let (row, block) = (shape.row(), tensor_type.block_elements());
        if !row.is_multiple_of(block) {
            return Err(GgufError::RowNotWholeBlocks { tensor: name, tensor_type, row, block });
        }
        let bytes = tensor_type.row_bytes(row).zip(shape.rows()).and_then(|(row, rows)| row.checked_mul(rows));
        // Elements are bounded too: types of less than a byte each could fit where their count does not.
        let (Some(byte_len), Some(0..=MAX_ELEMENTS)) = (bytes, shape.elements()) else {
            return Err(GgufError::TensorTooLarge { tensor: name, offset: shape_offset });
        };
        let offset = self.u64("a tensor offset")?;
        Ok(TensorInfo { name, shape, tensor_type, part: 0, offset, byte_len })
    }

    fn shape(&mut self, tensor: &str) -> Result<(Shape, u64), GgufError> {
        let offset = self.at;
        let found = self.u32("the number of dimensions")?;
        let too_many = || GgufError::TooManyDimensions { tensor: tensor.to_owned(), offset, found };
        let count = usize::try_from(found).ok().filter(|&count| count <= MAX_DIMENSIONS).ok_or_else(too_many)?;
        let dims_offset = self.at;
        let mut dims = [1; MAX_DIMENSIONS];
        for dim in &mut dims[..count] {
            let offset = self.at;
            *dim = self.u64("a dimension")?;
            if *dim == 0 {
                return Err(GgufError::ZeroDimension { tensor: tensor.to_owned(), offset });
            }
        }
        let shape = Shape::new(&dims[..count]).ok_or_else(too_many)?;
        Ok((shape, dims_offset))
    }
}

/// ggml counts elements in a signed 64-bit integer.
const MAX_ELEMENTS: u64 = i64::MAX as u64;
