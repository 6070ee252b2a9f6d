//! Why a model cannot be laid out, and what had to be assumed.

use std::fmt;

use thiserror::Error;

use crate::gguf::MetadataError;

/// Why a model cannot be laid out.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// An architecture that is not known, and whose keys and tensors do not say enough.
    #[error(
        "architecture \"{name}\" is not known here, and its header does not say enough to plan it ({reason}); known: {}",
        super::known_architectures().collect::<Vec<_>>().join(", ")
    )]
    UnknownArchitecture {
        /// `general.architecture`, or `model_type` of a `config.json`.
        name: String,
        /// What is missing.
        reason: String,
    },
    /// A file that is no language model.
    #[error("this is {what}, not a language model: {remedy}")]
    NotAModel {
        /// What it is.
        what: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A key is missing, of the wrong type or out of range.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// Two values that contradict each other.
    #[error("{architecture}: {what}: the file is damaged, or its converter is at fault")]
    Inconsistent {
        /// The architecture.
        architecture: String,
        /// The contradiction, with the keys and their values.
        what: String,
    },
}

/// Something a plan rests on that the file did not say.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutWarning {
    /// The architecture is not known; keys and tensors said how its layers attend.
    UnknownArchitecture {
        /// Its name.
        name: String,
    },
    /// A window that is stated, but not for which layers: all are charged the whole context.
    WindowIgnored {
        /// Tokens of the window.
        window: u64,
    },
    /// A tensor that the file stores and nobody loads, because the output projection is the embedding.
    TiedOutput {
        /// Its name.
        tensor: String,
        /// What is not charged.
        bytes: u64,
    },
    /// The tower's geometry is not in the file: only its weights are charged.
    VisionGeometry,
}

impl fmt::Display for LayoutWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutWarning::UnknownArchitecture { name } => write!(
                f,
                "architecture \"{name}\" is not known here; planned from its keys and tensors, check the layers below"
            ),
            LayoutWarning::WindowIgnored { window } => write!(
                f,
                "the file states a window of {window} tokens but not for which layers; all are charged the whole context"
            ),
            LayoutWarning::TiedOutput { tensor, bytes } => write!(
                f,
                "\"{tensor}\" ({} MiB) is stored and not charged: the output projection is the embedding",
                bytes >> 20
            ),
            LayoutWarning::VisionGeometry => {
                write!(f, "the vision tower's geometry is not in the file: its weights are charged, its scratch is not")
            }
        }
    }
}
