//! Header-only readers of model files for the memtier planner and engines.
//!
//! A model file says everything a planner needs (which tensors there are, how large they are, how the layers attend)
//! in its first few megabytes. This crate reads those and nothing else: a 100 GB model opens in milliseconds, and
//! the weights are never touched.
//!
//! - [`gguf`]: the container. [`Gguf`] is a model made of one file or of split parts, [`Header`] one file's header.
//! - [`TensorType`]: every ggml element type, with its block geometry.
//! - [`describe`]: [`ModelDescription`], the hyperparameters of an architecture resolved layer by layer, with the
//!   tensors that it requires checked against them.
//! - [`layout`]: [`ModelLayout`], what a model of any architecture keeps in memory: what the planner consumes.
//! - [`safetensors`]: the other container: folders with a `config.json`.
//! - [`mod@write`]: a writer for small files, for tests and tools.
//!
//! The readers take untrusted bytes: every count, length, offset and dimension is checked against the size of the
//! file and a limit before anything is allocated, and no input panics.
//!
//! ```
//! use memtier_model::{Gguf, ModelDescription, TensorType, write::GgufWriter};
//!
//! let mut file = GgufWriter::new();
//! file.string("general.architecture", "mamba-of-the-future").tensor("w", &[32], TensorType::F32, vec![0; 128])?;
//! let bytes = file.to_bytes();
//!
//! let model = Gguf::from_bytes(&bytes)?;
//! assert_eq!(model.tensor("w").map(|tensor| tensor.byte_len), Some(128));
//! let refusal = ModelDescription::from_gguf(&model).unwrap_err().to_string();
//! assert!(refusal.contains("mamba-of-the-future") && refusal.contains("gemma3, llama"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "plan")]
pub mod demands;
pub mod describe;
pub mod gguf;
pub mod layout;
pub mod safetensors;
mod tensor_type;
pub mod write;

pub use describe::{Architecture, DescribeError, ModelDescription};
pub use gguf::{Gguf, GgufError, Header, Metadata, MetadataError, SplitError, TensorInfo};
pub use layout::{LayoutError, ModelLayout};
pub use tensor_type::TensorType;
