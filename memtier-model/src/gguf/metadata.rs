//! Metadata by key and type.

use thiserror::Error;

use super::error::GgufError;
use super::value::{Array, Value, ValueType};

/// Why a metadata value cannot be had as asked.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataError {
    /// The file does not have the key.
    #[error("the file has no key \"{key}\", which is required; convert the model again with a current converter")]
    Missing {
        /// The key.
        key: String,
    },
    /// The value has another type.
    #[error("key \"{key}\" is {found}, where {wanted} belongs; convert the model again with a current converter")]
    WrongType {
        /// The key.
        key: String,
        /// What was asked for.
        wanted: &'static str,
        /// What the file holds.
        found: ValueType,
    },
    /// An integer that does not fit, or a number that makes no sense for its key.
    #[error("key \"{key}\" is {found}, which is out of range ({range}): the file is damaged or hostile")]
    OutOfRange {
        /// The key.
        key: String,
        /// The value.
        found: String,
        /// What is accepted.
        range: String,
    },
    /// A text that is not UTF-8.
    #[error("the text of key \"{key}\" is not UTF-8")]
    NotUtf8 {
        /// The key.
        key: String,
    },
    /// A per-layer array with another length than there are layers.
    #[error("key \"{key}\" has {found} values for {layers} layers: it must have one a layer, or be a single value")]
    NotPerLayer {
        /// The key.
        key: String,
        /// Elements of the array.
        found: usize,
        /// Layers of the model.
        layers: u32,
    },
}

/// One key and where its value is.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// Where the entry begins in the file.
    pub(crate) offset: u64,
    pub(crate) value_type: ValueType,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// All entries in file order, and their order by key.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    entries: Vec<Entry>,
    by_key: Vec<usize>,
}

impl Index {
    pub(crate) fn new(entries: Vec<Entry>) -> Result<Index, GgufError> {
        let mut by_key: Vec<usize> = (0..entries.len()).collect();
        // Stable, so that of two equal keys the later one is reported.
        by_key.sort_by(|&a, &b| entries[a].key.cmp(&entries[b].key));
        for pair in by_key.windows(2) {
            let (first, second) = (&entries[pair[0]], &entries[pair[1]]);
            if first.key == second.key {
                return Err(GgufError::DuplicateKey { key: second.key.clone(), offset: second.offset });
            }
        }
        Ok(Index { entries, by_key })
    }

    fn find(&self, key: &str) -> Option<&Entry> {
        let at = self.by_key.binary_search_by(|&index| self.entries[index].key.as_str().cmp(key)).ok()?;
        Some(&self.entries[self.by_key[at]])
    }
}

/// The metadata of a file: keys and values, read by type. A copy of this view is free.
///
/// Integers are accepted in any width that holds the value asked for, because converters differ in what they write;
/// everything else must have the type asked for.
#[derive(Clone, Copy, Debug)]
pub struct Metadata<'h> {
    index: &'h Index,
    bytes: &'h [u8],
}

impl<'h> Metadata<'h> {
    pub(crate) fn new(index: &'h Index, bytes: &'h [u8]) -> Self {
        Metadata { index, bytes }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.index.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.index.entries.is_empty()
    }

    /// Keys and values in file order.
    pub fn iter(self) -> impl Iterator<Item = (&'h str, Value<'h>)> {
        self.index.entries.iter().filter_map(move |entry| Some((entry.key.as_str(), self.value(entry)?)))
    }

    fn value(self, entry: &Entry) -> Option<Value<'h>> {
        // The range was walked by the parser, so this is always `Some`.
        Value::decode(entry.value_type, self.bytes.get(entry.start..entry.end)?).map(|(value, _)| value)
    }

    /// The value of a key, of whatever type.
    pub fn get(self, key: &str) -> Option<Value<'h>> {
        self.value(self.index.find(key)?)
    }

    /// The value of a key as `T`, or `None` when the file does not have the key.
    ///
    /// # Errors
    /// [`MetadataError::WrongType`], [`OutOfRange`](MetadataError::OutOfRange) or
    /// [`NotUtf8`](MetadataError::NotUtf8) when the value is no `T`.
    pub fn optional<T: FromValue<'h>>(self, key: &str) -> Result<Option<T>, MetadataError> {
        self.get(key).map(|value| T::from_value(key, value)).transpose()
    }

    /// The value of a key as `T`.
    ///
    /// # Errors
    /// As [`optional`](Self::optional), and [`MetadataError::Missing`].
    pub fn required<T: FromValue<'h>>(self, key: &str) -> Result<T, MetadataError> {
        self.optional(key)?.ok_or_else(|| MetadataError::Missing { key: key.to_owned() })
    }

    /// A required integer. See [`required`](Self::required) for the errors of this and the next five.
    #[allow(clippy::missing_errors_doc, reason = "the first line says where they are")]
    pub fn u32(self, key: &str) -> Result<u32, MetadataError> {
        self.required(key)
    }

    /// A required integer.
    #[allow(clippy::missing_errors_doc, reason = "as u32")]
    pub fn u64(self, key: &str) -> Result<u64, MetadataError> {
        self.required(key)
    }

    /// A required number.
    #[allow(clippy::missing_errors_doc, reason = "as u32")]
    pub fn f32(self, key: &str) -> Result<f32, MetadataError> {
        self.required(key)
    }

    /// A required boolean.
    #[allow(clippy::missing_errors_doc, reason = "as u32")]
    pub fn bool(self, key: &str) -> Result<bool, MetadataError> {
        self.required(key)
    }

    /// A required text.
    #[allow(clippy::missing_errors_doc, reason = "as u32")]
    pub fn str(self, key: &str) -> Result<&'h str, MetadataError> {
        self.required(key)
    }

    /// A required array.
    #[allow(clippy::missing_errors_doc, reason = "as u32")]
    pub fn array(self, key: &str) -> Result<Array<'h>, MetadataError> {
        self.required(key)
    }

    /// A value for each layer: an array with one element a layer, or one value that all layers share. `None` when
    /// the file does not have the key.
    ///
    /// # Errors
    /// As [`optional`](Self::optional), and [`MetadataError::NotPerLayer`] when an array has another length.
    pub fn per_layer<T: FromValue<'h> + Clone>(self, key: &str, layers: u32) -> Result<Option<Vec<T>>, MetadataError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(array)) => {
                if array.len() as u64 != u64::from(layers) {
                    return Err(MetadataError::NotPerLayer { key: key.to_owned(), found: array.len(), layers });
                }
                array.iter().map(|value| T::from_value(key, value)).collect::<Result<_, _>>().map(Some)
            }
            Some(value) => Ok(Some(vec![T::from_value(key, value)?; layers as usize])),
        }
    }
}

/// Types that a metadata value can be read as.
pub trait FromValue<'h>: Sized + sealed::Sealed {
    /// Converts the value of `key`, or says why it cannot.
    #[doc(hidden)]
    fn from_value(key: &str, value: Value<'h>) -> Result<Self, MetadataError>;
}

mod sealed {
    pub trait Sealed {}
}

fn wrong_type(key: &str, wanted: &'static str, value: Value<'_>) -> MetadataError {
    MetadataError::WrongType { key: key.to_owned(), wanted, found: value.value_type() }
}

macro_rules! integers {
    ($($type:ident)*) => {$(
        impl sealed::Sealed for $type {}
        impl<'h> FromValue<'h> for $type {
            fn from_value(key: &str, value: Value<'h>) -> Result<Self, MetadataError> {
                let found = value.as_integer().ok_or_else(|| wrong_type(key, "an integer", value))?;
                $type::try_from(found).map_err(|_| MetadataError::OutOfRange {
                    key: key.to_owned(),
                    found: found.to_string(),
                    range: format!("{} to {}", $type::MIN, $type::MAX),
                })
            }
        }
    )*};
}
integers!(u32 i32 u64);

impl sealed::Sealed for bool {}
impl<'h> FromValue<'h> for bool {
    fn from_value(key: &str, value: Value<'h>) -> Result<Self, MetadataError> {
        match value {
            Value::Bool(value) => Ok(value),
            other => Err(wrong_type(key, "a boolean", other)),
        }
    }
}

impl sealed::Sealed for f32 {}
impl<'h> FromValue<'h> for f32 {
    fn from_value(key: &str, value: Value<'h>) -> Result<Self, MetadataError> {
        match value {
            Value::F32(number) => Ok(number),
            Value::F64(number) => Ok(number as f32),
            other => Err(wrong_type(key, "a number", other)),
        }
    }
}

impl sealed::Sealed for &str {}
impl<'h> FromValue<'h> for &'h str {
    fn from_value(key: &str, value: Value<'h>) -> Result<Self, MetadataError> {
        match value {
            Value::String(text) => {
                std::str::from_utf8(text).map_err(|_| MetadataError::NotUtf8 { key: key.to_owned() })
            }
            other => Err(wrong_type(key, "a string", other)),
        }
    }
}

impl sealed::Sealed for Array<'_> {}
impl<'h> FromValue<'h> for Array<'h> {
    fn from_value(key: &str, value: Value<'h>) -> Result<Self, MetadataError> {
        match value {
            Value::Array(array) => Ok(array),
            other => Err(wrong_type(key, "an array", other)),
        }
    }
}
