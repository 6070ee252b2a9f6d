//! The reference engine of memtier: reads a GGUF, plans, loads and serves it.
//!
//! ```text
//! file.rs        the mapped model file
//! arch.rs        what the forward pass needs to know of it
//! kv_types.rs    which element type each layer's keys and values have
//! streaming.rs   sequences that run past their planned length
//! weights.rs     the annotated buffers: what memtier prices, carves and owns
//! model.rs       the bundle, and its sizes under a configuration
//! load.rs        uploads through staging
//! offload.rs     which layers run on the device: the one place that decides
//! reserve.rs     what the process takes beside its plan
//! compute.rs     where a model is served from, and what that must bring along
//! forward.rs     the model: one function for every device
//! operations.rs  the operations that it is made of
//! ops/           how the CPU does them, over spans
//! cuda/          how a CUDA device does them (feature `cuda`)
//! policy/        budget, pressure and admission: what is given up when memory is short
//! serve/         Engine<Loading> -> Planning -> Serving; requests, passes, scoring
//! ```

pub mod arch;
pub mod compute;
pub mod config;
#[cfg(feature = "cuda")]
pub mod cuda;
mod error;
mod file;
pub mod forward;
pub mod kv_types;
mod load;
pub mod model;
mod offload;
pub mod operations;
pub mod ops;
pub mod policy;
mod reserve;
mod sequence;
mod serve;
pub mod streaming;
pub mod tokenizer;
pub mod weights;

pub use config::Settings;
pub use error::EngineError;
pub use file::ModelFile;
pub use load::Progress;
pub use offload::GpuLayers;
pub use reserve::Reserve;
pub use sequence::Sampling;
pub use serve::{Addresses, Llm, Outcome, PartReport, Probe, RequestId, Row, SwapFailed, Token};
pub use streaming::Streaming;
