//! Why a model cannot be described.

use std::fmt;

use thiserror::Error;

use crate::gguf::{MetadataError, Shape};

/// Why a model cannot be described.
#[derive(Debug, Error, Clone, PartialEq)]
#[non_exhaustive]
pub enum DescribeError {
    /// The architecture is not one of those known here.
    #[error("architecture \"{name}\" is not supported; supported: {}", supported.join(", "))]
    UnknownArchitecture {
        /// `general.architecture` of the file.
        name: String,
        /// The architectures that are known.
        supported: Vec<&'static str>,
    },
    /// A key is missing, of the wrong type or out of range.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// Two values that contradict each other.
    #[error("{architecture}: {what}: the file is damaged, or its converter is at fault")]
    Inconsistent {
        /// The architecture.
        architecture: &'static str,
        /// The contradiction, with the keys and their values.
        what: String,
    },
    /// The file uses a feature that is not described yet.
    #[error("{architecture}: {feature} (key \"{key}\") is not supported yet")]
    Unsupported {
        /// The architecture.
        architecture: &'static str,
        /// The feature.
        feature: String,
        /// The key that asks for it.
        key: String,
    },
    /// Tensors are missing or of another shape than the hyperparameters ask for.
    #[error("{architecture}: {} of the model's tensors are not as its metadata says: {}", problems.len(), list(problems))]
    Tensors {
        /// The architecture.
        architecture: &'static str,
        /// All of them, in the order of the model.
        problems: Vec<TensorProblem>,
    },
}

/// A tensor that is not as its architecture requires.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorProblem {
    /// The file does not have it.
    Missing {
        /// Its name.
        tensor: String,
        /// The shape it should have, row length first.
        expected: Vec<u64>,
    },
    /// It has another shape.
    Shape {
        /// Its name.
        tensor: String,
        /// The shape it should have, row length first.
        expected: Vec<u64>,
        /// The shape it has.
        found: Shape,
    },
}

impl fmt::Display for TensorProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorProblem::Missing { tensor, expected } => write!(f, "\"{tensor}\" {expected:?} is missing"),
            TensorProblem::Shape { tensor, expected, found } => {
                write!(f, "\"{tensor}\" is {found} where {expected:?} belongs")
            }
        }
    }
}

/// The first few problems: a file cut short lacks hundreds of tensors, and the first say what is wrong.
fn list(problems: &[TensorProblem]) -> String {
    const SHOWN: usize = 8;
    let mut text = problems.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    if problems.len() > SHOWN {
        text += &format!("; and {} more", problems.len() - SHOWN);
    }
    text
}
