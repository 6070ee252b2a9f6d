//! Metadata values, borrowed from the header.

use std::fmt;

/// The type of a metadata value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the type it names")]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    /// The type with this number in a file.
    pub fn from_id(id: u32) -> Option<ValueType> {
        use ValueType::*;
        const TYPES: [ValueType; 13] = [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64];
        usize::try_from(id).ok().and_then(|index| TYPES.get(index).copied())
    }

    /// The number that stands for the type in a file.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// Bytes of a value; for strings and arrays, the least that one takes.
    pub(crate) fn min_bytes(self) -> u64 {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::U64 | ValueType::I64 | ValueType::F64 | ValueType::String => 8,
            ValueType::Array => 12,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::String => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        };
        f.pad(name)
    }
}

/// A metadata value. Strings are bytes here: GGUF says UTF-8, files do not always keep to it; the typed access of
/// [`Metadata`](super::Metadata) checks.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant holds a value of the type it names")]
pub enum Value<'h> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(&'h [u8]),
    Array(Array<'h>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'h> Value<'h> {
    /// The type of the value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// The value as an integer, when it is one.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// Appends the value as a file holds it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::U8(v) => out.extend(v.to_le_bytes()),
            Value::I8(v) => out.extend(v.to_le_bytes()),
            Value::U16(v) => out.extend(v.to_le_bytes()),
            Value::I16(v) => out.extend(v.to_le_bytes()),
            Value::U32(v) => out.extend(v.to_le_bytes()),
            Value::I32(v) => out.extend(v.to_le_bytes()),
            Value::F32(v) => out.extend(v.to_le_bytes()),
            Value::U64(v) => out.extend(v.to_le_bytes()),
            Value::I64(v) => out.extend(v.to_le_bytes()),
            Value::F64(v) => out.extend(v.to_le_bytes()),
            Value::Bool(v) => out.push(u8::from(*v)),
            Value::String(text) => {
                out.extend((text.len() as u64).to_le_bytes());
                out.extend_from_slice(text);
            }
            Value::Array(array) => {
                out.extend(array.element.id().to_le_bytes());
                out.extend((array.len as u64).to_le_bytes());
                out.extend_from_slice(array.bytes);
            }
        }
    }

    /// Decodes a value and returns it with the bytes after it; `None` when they do not hold one.
    pub(crate) fn decode(value_type: ValueType, bytes: &'h [u8]) -> Option<(Value<'h>, &'h [u8])> {
        fn number<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
            let (head, rest) = bytes.split_first_chunk::<N>()?;
            Some((*head, rest))
        }
        Some(match value_type {
            ValueType::U8 => number(bytes).map(|(b, rest)| (Value::U8(u8::from_le_bytes(b)), rest))?,
            ValueType::I8 => number(bytes).map(|(b, rest)| (Value::I8(i8::from_le_bytes(b)), rest))?,
            ValueType::U16 => number(bytes).map(|(b, rest)| (Value::U16(u16::from_le_bytes(b)), rest))?,
            ValueType::I16 => number(bytes).map(|(b, rest)| (Value::I16(i16::from_le_bytes(b)), rest))?,
            ValueType::U32 => number(bytes).map(|(b, rest)| (Value::U32(u32::from_le_bytes(b)), rest))?,
            ValueType::I32 => number(bytes).map(|(b, rest)| (Value::I32(i32::from_le_bytes(b)), rest))?,
            ValueType::F32 => number(bytes).map(|(b, rest)| (Value::F32(f32::from_le_bytes(b)), rest))?,
            ValueType::U64 => number(bytes).map(|(b, rest)| (Value::U64(u64::from_le_bytes(b)), rest))?,
            ValueType::I64 => number(bytes).map(|(b, rest)| (Value::I64(i64::from_le_bytes(b)), rest))?,
            ValueType::F64 => number(bytes).map(|(b, rest)| (Value::F64(f64::from_le_bytes(b)), rest))?,
            ValueType::Bool => {
                let (&byte, rest) = bytes.split_first()?;
                (Value::Bool(byte != 0), rest)
            }
            ValueType::String => {
                let (len, rest) = number(bytes)?;
                let len = usize::try_from(u64::from_le_bytes(len)).ok()?;
                let (text, rest) = rest.split_at_checked(len)?;
                (Value::String(text), rest)
            }
            ValueType::Array => {
                let (element, rest) = number(bytes)?;
                let (len, rest) = number(rest)?;
                let element = ValueType::from_id(u32::from_le_bytes(element))?;
                let len = usize::try_from(u64::from_le_bytes(len)).ok()?;
                (Value::Array(Array { element, len, bytes: rest }), &[])
            }
        })
    }
}

/// An array in the metadata, still encoded: elements are decoded as they are asked for.
#[derive(Clone, Copy, PartialEq)]
pub struct Array<'h> {
    element: ValueType,
    len: usize,
    bytes: &'h [u8],
}

impl<'h> Array<'h> {
    /// The type of the elements.
    pub fn element_type(&self) -> ValueType {
        self.element
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in order.
    pub fn iter(&self) -> Values<'h> {
        Values { element: self.element, left: self.len, bytes: self.bytes }
    }

    /// The elements' bytes, when this is an array of strings.
    pub fn strings(&self) -> Option<Strings<'h>> {
        (self.element == ValueType::String).then(|| Strings(self.iter()))
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}; {}]", self.element, self.len)
    }
}

impl<'h> IntoIterator for Array<'h> {
    type Item = Value<'h>;
    type IntoIter = Values<'h>;

    fn into_iter(self) -> Values<'h> {
        self.iter()
    }
}

/// Iterator over the elements of an [`Array`].
#[derive(Clone, Debug)]
pub struct Values<'h> {
    element: ValueType,
    left: usize,
    bytes: &'h [u8],
}

impl<'h> Iterator for Values<'h> {
    type Item = Value<'h>;

    fn next(&mut self) -> Option<Value<'h>> {
        self.left = self.left.checked_sub(1)?;
        // The parser has walked these bytes, so decoding succeeds; were it not to, the array ends early.
        let (value, rest) = Value::decode(self.element, self.bytes)?;
        self.bytes = rest;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

/// Iterator over the elements of an [`Array`] of strings.
#[derive(Clone, Debug)]
pub struct Strings<'h>(Values<'h>);

impl<'h> Iterator for Strings<'h> {
    type Item = &'h [u8];

    fn next(&mut self) -> Option<&'h [u8]> {
        match self.0.next()? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}
