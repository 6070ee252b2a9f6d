//! The tensors that an architecture requires.

use super::error::{DescribeError, TensorProblem};
use crate::gguf::Gguf;

/// Collects what is wrong with a model's tensors, all of it, so that one run shows the whole extent.
pub(crate) struct Requirements<'m> {
    model: &'m Gguf<'m>,
    architecture: &'static str,
    problems: Vec<TensorProblem>,
}

impl<'m> Requirements<'m> {
    pub(crate) fn new(model: &'m Gguf<'_>, architecture: &'static str) -> Self {
        Requirements { model, architecture, problems: Vec::new() }
    }

    /// The tensor must be there in this shape (row length first).
    pub(crate) fn need(&mut self, tensor: impl Into<String>, expected: &[u64]) {
        let tensor = tensor.into();
        if !self.allow(&tensor, expected) {
            self.problems.push(TensorProblem::Missing { tensor, expected: expected.to_vec() });
        }
    }

    /// The tensor may be absent, but must have this shape when it is there. Returns whether it is.
    pub(crate) fn allow(&mut self, tensor: &str, expected: &[u64]) -> bool {
        let Some(found) = self.model.tensor(tensor) else { return false };
        if !found.shape.is(expected) {
            self.problems.push(TensorProblem::Shape {
                tensor: tensor.to_owned(),
                expected: expected.to_vec(),
                found: found.shape,
            });
        }
        true
    }

    pub(crate) fn finish(self) -> Result<(), DescribeError> {
        if self.problems.is_empty() {
            return Ok(());
        }
        Err(DescribeError::Tensors { architecture: self.architecture, problems: self.problems })
    }
}
