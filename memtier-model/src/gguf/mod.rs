//! GGUF, the container of ggml models: versions 2 and 3, little endian, one file or split parts.
//!
//! [`Header`] parses one file from a reader or from its first bytes; [`Gguf`] is the model: the metadata of the
//! first part and the tensors of all. Metadata values are read by type through [`Metadata`]; arrays (a vocabulary of
//! 262,144 strings, say) stay where they are and are walked on demand.

mod error;
mod header;
mod limits;
mod metadata;
mod model;
mod parse;
mod source;
mod split;
mod tensor;
mod value;

pub use error::GgufError;
pub use header::Header;
pub use limits::Limits;
pub use metadata::{FromValue, Metadata, MetadataError};
pub use model::Gguf;
pub use split::{SplitError, split_paths};
pub use tensor::{Shape, TensorInfo};
pub use value::{Array, Strings, Value, ValueType, Values};
