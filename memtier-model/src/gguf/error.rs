//! What can be wrong with a GGUF file.

use std::path::PathBuf;

use thiserror::Error;

use super::metadata::MetadataError;
use super::split::SplitError;
use crate::tensor_type::TensorType;

/// Why a GGUF file cannot be used. Every variant names the offset, key or tensor at fault; offsets are bytes from the
/// beginning of the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The operating system refused.
    #[error("cannot read {path}: {source}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Reading from an open reader failed.
    #[error("reading the header failed at byte {offset}: {source}")]
    Read {
        /// Where the read began.
        offset: u64,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The first four bytes are not `GGUF`.
    #[error(
        "not a GGUF file: it begins with bytes {found:02x?} where \"GGUF\" belongs; check the path, and that a \
         download fetched the file itself rather than a pointer or a web page"
    )]
    WrongMagic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// A big-endian file.
    #[error(
        "this is a big-endian GGUF file (version {version}); memtier reads little-endian files: convert it with \
         gguf-py's gguf_convert_endian, or fetch the little-endian edition"
    )]
    BigEndian {
        /// The version, read the other way round.
        version: u32,
    },
    /// A version that is neither 2 nor 3.
    #[error("GGUF version {version} is not supported (versions 2 and 3 are); convert the model again")]
    UnsupportedVersion {
        /// The version at byte 4.
        version: u32,
    },
    /// The file ends within its header.
    #[error(
        "the file is truncated: {what} at byte {offset} needs the file to have {needed} bytes, and it has {available}; \
         fetch it again"
    )]
    Truncated {
        /// Where the item begins.
        offset: u64,
        /// What was being read.
        what: &'static str,
        /// Bytes the file needs to have, at least.
        needed: u64,
        /// Bytes it has.
        available: u64,
    },
    /// The bytes given are a prefix that ends within the header. Read more of the file and try again.
    #[error("the header goes on past the {given} bytes given: at least {needed} are needed")]
    PrefixTooShort {
        /// Bytes needed next; the header may go on after them.
        needed: u64,
        /// Bytes that were given.
        given: u64,
    },
    /// A count or a length above the [`Limits`](super::Limits).
    #[error("{what} at byte {offset} is {found}, above the limit of {limit}: the file is damaged or hostile")]
    Limit {
        /// Where the number stands.
        offset: u64,
        /// What it counts.
        what: &'static str,
        /// The number.
        found: u64,
        /// The most that is accepted.
        limit: u64,
    },
    /// A key, a tensor name or a text that is not UTF-8.
    #[error("{what} at byte {offset} is not UTF-8: the file is damaged")]
    NotUtf8 {
        /// Where the text begins.
        offset: u64,
        /// Which text it is.
        what: &'static str,
    },
    /// A metadata value type that GGUF does not define.
    #[error("key \"{key}\" has the unknown value type {found} at byte {offset}: damaged, or newer than this reader")]
    UnknownValueType {
        /// The key.
        key: String,
        /// Where the type stands.
        offset: u64,
        /// The type's number.
        found: u32,
    },
    /// An array of arrays, which no model uses.
    #[error("key \"{key}\" is an array of arrays (byte {offset}), which memtier does not read")]
    NestedArray {
        /// The key.
        key: String,
        /// Where the element type stands.
        offset: u64,
    },
    /// A boolean that is neither 0 nor 1.
    #[error("key \"{key}\" holds the byte {found} at {offset} where a boolean (0 or 1) belongs: the file is damaged")]
    BadBool {
        /// The key.
        key: String,
        /// Where the byte stands.
        offset: u64,
        /// The byte.
        found: u8,
    },
    /// Two metadata entries with one key.
    #[error(
        "key \"{key}\" appears twice (again at byte {offset}): which one counts is unknown, convert the model again"
    )]
    DuplicateKey {
        /// The key.
        key: String,
        /// Where it appears again.
        offset: u64,
    },
    /// Two tensors with one name.
    #[error("tensor \"{tensor}\" appears twice (again at byte {offset}): convert the model again")]
    DuplicateTensor {
        /// The name.
        tensor: String,
        /// Where it appears again; in a split model, within the later part.
        offset: u64,
    },
    /// `general.alignment` is not a power of two.
    #[error("general.alignment is {found}, and must be a power of two of at most 1 GiB: convert the model again")]
    BadAlignment {
        /// The value.
        found: u64,
    },
    /// A value that the reader itself needs has another type than it should.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A tensor with more than four dimensions.
    #[error("tensor \"{tensor}\" has {found} dimensions (byte {offset}); ggml tensors have at most 4")]
    TooManyDimensions {
        /// The tensor.
        tensor: String,
        /// Where the count stands.
        offset: u64,
        /// The count.
        found: u32,
    },
    /// A dimension of zero.
    #[error("tensor \"{tensor}\" has a dimension of 0 (byte {offset}): it holds nothing, the file is damaged")]
    ZeroDimension {
        /// The tensor.
        tensor: String,
        /// Where the dimension stands.
        offset: u64,
    },
    /// The dimensions multiply to more than 2^63.
    #[error("the dimensions of tensor \"{tensor}\" (byte {offset}) multiply to more than a file can hold")]
    TensorTooLarge {
        /// The tensor.
        tensor: String,
        /// Where the dimensions stand.
        offset: u64,
    },
    /// A tensor type that this reader does not know.
    #[error(
        "tensor \"{tensor}\" has the unknown type {found} (byte {offset}); this reader knows ggml's types up to Q2_0 \
         (42): use a newer memtier, or quantise the model to another type"
    )]
    UnknownTensorType {
        /// The tensor.
        tensor: String,
        /// Where the type stands.
        offset: u64,
        /// The type's number.
        found: u32,
    },
    /// A tensor type that ggml has removed.
    #[error("tensor \"{tensor}\" has the type {name}, which ggml has removed: quantise the model again")]
    RemovedTensorType {
        /// The tensor.
        tensor: String,
        /// The type.
        name: &'static str,
    },
    /// A row that is no whole number of blocks.
    #[error("tensor \"{tensor}\": rows of {row} elements are no whole number of {tensor_type} blocks of {block}")]
    RowNotWholeBlocks {
        /// The tensor.
        tensor: String,
        /// Its type.
        tensor_type: TensorType,
        /// Elements of a row.
        row: u64,
        /// Elements of a block.
        block: u64,
    },
    /// A tensor whose data begins between two steps of the alignment.
    #[error(
        "tensor \"{tensor}\" begins at {offset} of the data section, which is no multiple of the file's alignment \
         {alignment}: convert the model again"
    )]
    MisalignedTensor {
        /// The tensor.
        tensor: String,
        /// Its offset within the data section.
        offset: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// A tensor that ends after the file does.
    #[error(
        "tensor \"{tensor}\" ends at byte {needed}, and the file has {found} bytes: the download is incomplete, fetch \
         it again"
    )]
    TensorPastEnd {
        /// The tensor.
        tensor: String,
        /// Bytes the file needs to have.
        needed: u64,
        /// Bytes it has.
        found: u64,
    },
    /// Two tensors that share bytes.
    #[error("tensors \"{first}\" and \"{second}\" overlap at byte {offset}: the file is damaged")]
    OverlappingTensors {
        /// The one that begins first.
        first: String,
        /// The one that begins within it.
        second: String,
        /// Where the second begins.
        offset: u64,
    },
    /// The parts of a split model do not fit together.
    #[error(transparent)]
    Split(#[from] SplitError),
}
